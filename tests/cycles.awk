# Finds cycles between the files of one crate, for tests/cycles. `root` is the crate's folder, `others` are folders of
# other crates inside of it, `show` is --edges or nothing; lines of standard input, "FILE FILE: ...", name uses that do
# not count, and are printed behind a + where they close a cycle.
#
# A module is known by its path below the crate: "" is the crate itself, "a::b" is a/b.rs or a/b/mod.rs.

BEGIN {
    foreign = split(others, other, " ")
    while ((getline line < "-") > 0) {
        split(line, two, /[ :]+/)
        if (line != "") allowed[two[1], two[2]] = line
    }
}

FNR == 1 {
    finish_file()
    path = FILENAME
    skipped = 0
    for (i = 1; i <= foreign; i++) if (index(path, other[i] "/") == 1) skipped = 1
    module = substr(path, length(root) + 1)
    sub(/\.rs$/, "", module)
    sub(/(^|\/)(mod|lib|main)$/, "", module)
    gsub(/\//, "::", module)
    if (!skipped) { file[module] = path; modules[++count] = module; text = "" }
}

# Tests come last in a file.
/^#\[cfg\(.*test.*\)\]$/ { in_tests = 1; next }
in_tests && /^mod [a-z_]+ \{/ { skipped = 1 }
{ in_tests = 0 }

!skipped {
    sub(/(^|[^:"])\/\/.*$/, "")
    gsub(/"([^"\\]|\\.)*"/, "")
    # So that the word is told from others like it.
    sub(/^ *(pub(\([a-z: ]+\))? )?use /, "#use ")
    text = text " " $0
}

function finish_file() {
    if (module in file && !(module in source)) source[module] = text
    in_tests = 0
}

# Takes `use` declarations out of a module's text, each as one path with the name that it gets.
function read_uses(m,   rest, tree, at) {
    rest = source[m]
    while (match(rest, /#use [^;]*;/)) {
        tree = substr(rest, RSTART, RLENGTH)
        at = RSTART + RLENGTH
        source[m] = ""
        sub(/^#use +/, "", tree)
        sub(/;$/, "", tree)
        gsub(/ +as +/, "@", tree)
        gsub(/[ \t]+/, "", tree)
        expand(m, "", tree)
        kept[m] = kept[m] " " substr(rest, 1, RSTART)
        rest = substr(rest, at)
    }
    source[m] = kept[m] " " rest
}

# a::{b, c::{d, e}} is a::b, a::c::d, a::c::e.
function expand(m, prefix, tree,   depth, i, c, part, open) {
    open = index(tree, "{")
    if (!open) { add_use(m, prefix tree); return }
    prefix = prefix substr(tree, 1, open - 1)
    for (i = open + 1; i <= length(tree); i++) {
        c = substr(tree, i, 1)
        if ((c == "," && !depth) || (c == "}" && !depth)) {
            if (part != "") expand(m, prefix, part)
            part = ""
            if (c == "}") return
            continue
        }
        depth += (c == "{") - (c == "}")
        part = part c
    }
}

function add_use(m, use,   name) {
    name = use
    sub(/^.*(::|@)/, "", name)
    sub(/@.*$/, "", use)
    if (use ~ /::self$/) { sub(/::self$/, "", use); if (name == "self") { name = use; sub(/^.*::/, "", name) } }
    uses[m, ++used[m]] = use
    if (name == "*") globs[m] = globs[m] " " substr(use, 1, length(use) - 3)
    else imports[m, name] = use
}

function parent(m) { return sub(/(::)?[^:]+$/, "", m) ? m : "" }

# The module in which lies what a path leads to from a module; "-" where that is another crate's.
function resolve(m, use, depth,   parts, n, i, here, next_module, list, g, found) {
    if (depth > 8) return "-"
    n = split(use, parts, "::")
    here = m
    i = 1
    if (parts[1] == "crate") { here = ""; i = 2 }
    else if (parts[1] == "self") i = 2
    else if (parts[1] == "super") { for (; parts[i] == "super"; i++) here = parent(here) }
    else if (!(child(m, parts[1]) in file) && !((m, parts[1]) in imports)) return "-"
    for (; i <= n; i++) {
        next_module = child(here, parts[i])
        if (next_module in file) { here = next_module; continue }
        if ((here, parts[i]) in imports && !defines(here, parts[i])) {
            if (imports[here, parts[i]] == use && here == m) return "-"
            found = resolve(here, imports[here, parts[i]], depth + 1)
            if (found == "-") return "-"
            # The path may go on below a module that was imported.
            if (i < n && ends_in_module(here, imports[here, parts[i]], depth)) { here = found; continue }
            return found
        }
        if (!defines(here, parts[i]) && globs[here] != "" && parts[i] != "*") {
            g = split(globs[here], list, " ")
            for (; g > 0; g--) {
                found = resolve(here, list[g], depth + 1)
                if (found != "-" && found != here && defines(found, parts[i])) return found
            }
        }
        return here
    }
    return here
}

function ends_in_module(m, use, depth,   name, found) {
    name = use
    sub(/^.*::/, "", name)
    found = resolve(m, use, depth + 1)
    return found == name || found ~ ("::" name "$")
}

function child(m, name) { return m == "" ? name : m "::" name }

function defines(m, name) {
    return source[m] ~ ("(struct|enum|fn|trait|type|const|static|union|mod|macro_rules!) " name "[^a-zA-Z0-9_]")
}

# Whether one module lies in the other.
function lies_in(inner, outer) { return outer == "" || inner == outer || index(inner, outer "::") == 1 }

function add_edge(from, use,   to) {
    to = resolve(from, use, 0)
    if (to == "-" || lies_in(from, to) || (from, to) in edges) {
        if ((from, to) in edges && length(edges[from, to]) < 90) edges[from, to] = edges[from, to] ", " use
        return
    }
    edges[from, to] = use
    all_targets[from, ++all[from]] = to
    if ((file[from], file[to]) in allowed) { left_out[from, to] = allowed[file[from], file[to]]; return }
    targets[from, ++degree[from]] = to
}

function read_paths(m,   rest, use) {
    rest = source[m]
    while (match(rest, /[A-Za-z_][A-Za-z0-9_]*(::[A-Za-z_][A-Za-z0-9_]*)+/)) {
        use = substr(rest, RSTART, RLENGTH)
        rest = substr(rest, RSTART + RLENGTH)
        if (use ~ /^(crate|self|super)::/ || child(m, substr(use, 1, index(use, "::") - 1)) in file) add_edge(m, use)
    }
}

# Tarjan's strongly connected components.
function visit(m,   i, to) {
    number[m] = low[m] = ++clock
    stack[++height] = m
    on_stack[m] = 1
    for (i = 1; i <= degree[m]; i++) {
        to = targets[m, i]
        if (!(to in number)) { visit(to); if (low[to] < low[m]) low[m] = low[to] }
        else if (on_stack[to] && number[to] < low[m]) low[m] = number[to]
    }
    if (low[m] == number[m]) take_component(m)
}

# Whether one module uses the other, directly or through others.
function reaches(from, to,   i) {
    if (from == to) return 1
    if (from in seen) return 0
    seen[from] = 1
    for (i = 1; i <= all[from]; i++) if (reaches(all_targets[from, i], to)) return 1
    return 0
}

function take_component(m,   members, size, i, j, k, line, top) {
    do {
        top = stack[height--]
        on_stack[top] = 0
        members[++size] = top
    } while (top != m)
    if (size == 1) return
    for (i = 2; i <= size; i++) {
        for (j = i; j > 1 && file[members[j]] < file[members[j - 1]]; j--) {
            k = members[j]; members[j] = members[j - 1]; members[j - 1] = k
        }
    }
    for (i = 1; i <= size; i++) line = line (i > 1 ? " " : "") file[members[i]]
    print line
    if (show != "--edges") return
    for (i = 1; i <= size; i++) {
        for (j = 1; j <= size; j++) {
            edge = members[i] SUBSEP members[j]
            if (edge in edges) print " " members[i] " -> " members[j] ": " edges[edge]
        }
    }
}

END {
    finish_file()
    for (i = 1; i <= count; i++) read_uses(modules[i])
    for (i = 1; i <= count; i++) {
        for (j = 1; j <= used[modules[i]]; j++) add_edge(modules[i], uses[modules[i], j])
        read_paths(modules[i])
    }
    for (i = 1; i <= count; i++) if (!(modules[i] in number)) visit(modules[i])
    for (edge in left_out) {
        split(edge, two, SUBSEP)
        split("", seen)
        if (reaches(two[2], two[1])) print "+" left_out[edge]
    }
}
