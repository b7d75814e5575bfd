//! Images that contradict themselves, or ask for what their user may not have, each written by hand.

use serde_json::{Value, json};

use super::image::Documents;
use super::outside::Outside;

/// A change: whether there was anything in the image to be changed.
pub type Change = fn(&mut Documents, &Outside) -> bool;

/// All of them.
pub const ALL: &[(&str, Change)] = &[
    ("a circle of parents", |d, _| each(nodes(d), |node, _| node["ppid"] = node["pid"].clone())),
    ("a process twice", |d, _| again(d, 1)),
    ("a process ten thousand times", |d, _| again(d, 10_000)),
    ("no process at all", |d, _| {
        d.graph()["processes"] = json!([]);
        true
    }),
    ("a first process that is nobody", |d, _| set(d.graph(), "root", json!(77_777))),
    ("an init of a number below zero", |d, _| set(d.graph(), "init", json!(-5))),
    ("a session that nobody leads", |d, _| each(nodes(d), |node, _| node["sid"] = json!(31_000))),
    ("a group in another session", |d, _| {
        each(nodes(d), |node, at| node["pgid"] = json!(30_000 + at % 2))
    }),
    ("process numbers at the edge", |d, _| {
        each(nodes(d), |node, at| node["pid"] = json!(i64::from(i32::MAX) - at as i64))
    }),
    ("zombies that end by no signal", |d, _| {
        each(nodes(d), |node, _| node["state"] = json!({"state": "zombie", "status": -1}))
    }),
    ("only stand-ins", |d, _| {
        each(nodes(d), |node, _| node["state"] = json!({"state": "stand_in"}))
    }),
    ("clocks at their end", |d, _| {
        d.graph()["clocks"] =
            json!({"monotonic_ns": i64::MIN, "boottime_ns": i64::MAX, "realtime_ns": i64::MIN});
        true
    }),
    ("another page size", |d, _| set(d.graph(), "page_size", json!(0))),
    ("a blob without an end", |d, _| {
        each(list(d, "blobs"), |blob, _| blob["length"] = json!(u64::MAX))
    }),
    ("a gigabyte in flight", |d, _| {
        each(list(d, "blobs"), |blob, _| blob["length"] = json!(1_u64 << 30))
    }),
    ("spans that begin nowhere", |d, _| {
        each(list(d, "blobs"), |blob, _| {
            for span in blob["spans"].as_array_mut().into_iter().flatten() {
                span["offset"] = json!(u64::MAX - 7);
            }
        })
    }),
    ("inodes without an end", |d, _| {
        each(list(d, "inodes"), |inode, _| inode["size"] = json!(u64::MAX))
    }),
    ("inodes of root's, with all bits", |d, _| {
        each(list(d, "inodes"), |inode, _| {
            inode["mode"] = json!(0o7777);
            inode["owner"] = json!([0, 0]);
        })
    }),
    ("inodes with root's names", |d, o| {
        let path = o.secret.clone();
        each(list(d, "inodes"), |inode, _| {
            inode["origin"] = json!({"origin": "named", "path": path});
        })
    }),
    ("deleted files in a locked folder", |d, o| {
        let path = format!("{}/new", o.locked);
        each(list(d, "inodes"), |inode, _| {
            inode["origin"] = json!({"origin": "deleted", "path": path});
        })
    }),
    ("names linked into a locked folder", |d, o| {
        let path = format!("{}/new", o.locked);
        each(list(d, "inodes"), |inode, _| inode["links"] = json!([path]))
    }),
    ("a segment in a namespace that is none", |d, _| {
        each(list(d, "inodes"), |inode, _| inode["origin"]["namespace"] = json!(77))
    }),
    ("a socket of a network that is none", |d, _| {
        each(list(d, "files"), |file, _| file["network"] = json!(77))
    }),
    ("a socket of a network of other users", |d, _| {
        let content = json!({"kind": "own_network", "loopback_up": true});
        let user = user_namespace(json!([]));
        in_namespaces(d, json!([user, { "owner": 0, "content": content }]));
        each(list(d, "files"), |file, _| file["network"] = json!(1))
    }),
    ("objects of the job's own user namespace, of root's", |d, _| {
        let set = json!({"number": 0, "key": 1, "mode": 0o666, "owner": [0, 0], "creator": [0, 0],
                         "values": [1], "last": [1]});
        let content = json!({"kind": "own_ipc", "objects": {"semaphores": [set]}});
        in_namespaces(d, json!([{ "content": content }]))
    }),
    ("more semaphores than a set has", |d, _| {
        let set = json!({"number": 0, "key": 1, "mode": 0o666, "owner": [0, 0], "creator": [0, 0],
                         "values": vec![1; 40_000], "last": vec![1; 40_000]});
        let content = json!({"kind": "own_ipc", "objects": {"semaphores": [set]}});
        let user = user_namespace(json!([]));
        in_namespaces(d, json!([user, { "owner": 0, "content": content }]))
    }),
    ("a segment of the machine's size", |d, _| {
        each(list(d, "inodes"), |inode, _| {
            inode["origin"] = json!({"origin": "segment", "number": i32::MAX, "key": 1,
                "creator": [0, 0], "marked": false, "locked": true});
            inode["size"] = json!(1_u64 << 46);
        })
    }),
    ("a folder that is root's", |d, o| {
        let entry = json!({"name": "new", "mode": 0o4777, "owner": [0, 0], "modified_ns": 0,
            "kind": {"kind": "link", "target": "/etc/shadow"}});
        let folder = json!({"path": o.folder, "mode": 0o777, "entries": [entry]});
        set(d.graph(), "folders", json!([folder]))
    }),
    ("a folder that leads out of itself", |d, o| {
        let entry = json!({"name": "../../outside/new", "mode": 0o777, "owner": [0, 0],
            "modified_ns": 0, "kind": {"kind": "fifo"}});
        let folder =
            json!({"path": format!("{}/kept", o.scratch), "mode": 0o777, "entries": [entry]});
        set(d.graph(), "folders", json!([folder]))
    }),
    ("set-user-ID files in a folder", |d, o| {
        let entry = json!({"name": "fifo", "mode": 0o6777, "owner": [0, 0], "modified_ns": 0,
            "kind": {"kind": "fifo"}});
        let folder =
            json!({"path": format!("{}/kept", o.scratch), "mode": 0o7777, "entries": [entry]});
        set(d.graph(), "folders", json!([folder]))
    }),
    ("the same descriptor of all", |d, _| {
        each(objects(d), |object, _| *object = json!({"kind": "pipe", "pipe": 0, "size": 65_536}))
    }),
    ("terminals of the last number", |d, _| {
        each(objects(d).into_iter().filter(|o| o["kind"] == "terminal").collect(), |o, _| {
            o["index"] = json!(u32::MAX);
        })
    }),
    ("terminals without a state", |d, _| {
        each(objects(d), |object, _| drop_key(object, "terminal", "pair"))
    }),
    ("one terminal for two owners", |d, _| {
        each(objects(d).into_iter().filter(|o| o["kind"] == "terminal").collect(), |o, _| {
            o["index"] = json!(0);
        })
    }),
    ("sockets that are their own peers", |d, _| {
        each(objects(d), |object, at| {
            if object["kind"] == "unix_socket" {
                object["link"] = json!({"link": "socket", "file": at});
            }
        })
    }),
    ("sockets that wait at the last file", |d, _| {
        each(objects(d), |object, _| {
            if object["kind"] == "unix_socket" {
                object["link"] = json!({"link": "waiting", "listener": u32::MAX, "place": 0});
            }
        })
    }),
    ("TCP ports below 1024", |d, _| ports(d, "tcp_socket")),
    ("UDP ports below 1024", |d, _| ports(d, "udp_socket")),
    ("raw sockets, which are root's", |d, _| {
        let all = objects(d).into_iter().filter(|object| object["kind"] == "ip_socket");
        each(all.collect(), |object, at| object["raw"] = json!([1, 6, 17, 58, 255, -1][at % 6]))
    }),
    ("packet sockets, which are root's", |d, _| {
        let all = objects(d).into_iter().filter(|object| object["kind"] == "ip_socket");
        each(all.collect(), |object, at| {
            let membership = json!({"interface": "lo", "kind": 1, "count": u32::MAX});
            *object = json!({"kind": "packet_socket", "raw": at % 2 == 0, "protocol": 3, "interface": "lo",
                "memberships": [membership], "options": object["options"]});
        })
    }),
    ("connections of Multipath TCP", |d, _| {
        let all = objects(d).into_iter().filter(|object| object["kind"] == "tcp_socket");
        each(all.collect(), |object, _| object["multipath"] = json!(true))
    }),
    ("groups of netlink that are root's", |d, _| {
        each(objects(d), |object, _| {
            if object["kind"] == "netlink_socket" {
                object["protocol"] = json!(12);
                object["groups"] = json!(u32::MAX);
                object["memberships"] = json!([1, 2, 3, 31, 32, u32::MAX]);
            }
        })
    }),
    ("epoll instances that watch themselves", |d, _| {
        each(objects(d), |object, at| {
            for one in object["registrations"].as_array_mut().into_iter().flatten() {
                one["target"] = json!(at);
            }
        })
    }),
    ("devices of the machine", |d, _| {
        each(objects(d), |object, at| {
            let (path, minor) = [("/dev/mem", 1), ("/dev/kmsg", 11)][at % 2];
            *object = json!({"kind": "device", "path": path, "minor": minor});
        })
    }),
    ("device nodes made again", |d, o| {
        let path = format!("{}/node", o.scratch);
        each(objects(d), |object, _| {
            *object = json!({"kind": "device", "path": path, "minor": 1,
                "deleted": {"number": 1, "mode": 0o666, "owner": [0, 0]}});
        })
    }),
    ("files of root's", |d, o| by_path(d, &o.secret)),
    ("files in a locked folder", |d, o| by_path(d, &o.inner)),
    ("files of root's to be written", |d, o| by_path(d, &o.readable)),
    ("a FIFO for a file", |d, o| by_path(d, &o.fifo)),
    ("memory of the init", |d, _| pseudo(d, "/proc/self/mem")),
    ("a descriptor of the init", |d, _| pseudo(d, "/proc/self/fd/3")),
    ("the machine's memory map", |d, _| pseudo(d, "/proc/kcore")),
    ("locked folders", |d, o| {
        let path = o.locked.clone();
        each(objects(d), |object, _| {
            *object = json!({"kind": "directory", "path": path, "position": 0, "mode": 0o777,
                "deleted": false, "session": true});
        })
    }),
    ("places in locked folders", |d, o| {
        let path = o.inner.clone();
        for file in list(d, "files") {
            file["flags"] = json!(0o10_000_000);
            file["object"] = json!({"kind": "path_only", "place": "named", "path": path,
                "file_type": 0o100_000});
        }
        true
    }),
    ("a queue without an end", |d, _| {
        each(objects(d), |object, _| {
            if object["kind"] == "message_queue" {
                object["most_messages"] = json!(i64::MAX);
                object["message_size"] = json!(i64::MAX);
            }
        })
    }),
    ("every flag of every file", |d, _| {
        each(list(d, "files"), |file, _| file["flags"] = json!(i32::MAX))
    }),
    ("files of no number", |d, _| {
        descriptors(d, |descriptor, _| descriptor["file"] = json!(u32::MAX))
    }),
    ("descriptors at the edge", |d, _| {
        descriptors(d, |descriptor, at| descriptor["fd"] = json!(i64::from(i32::MAX) - at as i64))
    }),
    ("descriptors below zero", |d, _| descriptors(d, |descriptor, _| descriptor["fd"] = json!(-1))),
    ("one number for all descriptors", |d, _| {
        descriptors(d, |descriptor, _| descriptor["fd"] = json!(5))
    }),
    ("processes of root's", |d, _| credentials(d, |c| c["uids"] = json!([0, 0, 0, 0]))),
    ("processes with root saved", |d, _| credentials(d, |c| c["uids"][2] = json!(0))),
    ("processes of root's group", |d, _| credentials(d, |c| c["gids"] = json!([0, 0, 0, 0]))),
    ("processes in root's groups", |d, _| credentials(d, |c| c["groups"] = json!([0, 4, 42]))),
    ("groups without number", |d, _| credentials(d, |c| c["groups"] = json!(vec![1000; 70_000]))),
    ("all capabilities", |d, _| credentials(d, |c| c["capabilities"] = json!(vec![u64::MAX; 5]))),
    ("ambient capabilities", |d, _| {
        credentials(d, |c| c["capabilities"][4] = json!((1_u64 << 41) - 1))
    }),
    ("no bounding set", |d, _| credentials(d, |c| c["capabilities"][3] = json!(0))),
    ("secure bits", |d, _| credentials(d, |c| c["securebits"] = json!(0x3f))),
    ("a user namespace with root's number", |d, _| {
        in_namespaces(d, json!([user_namespace(json!([[0, 0, 1]]))]))
    }),
    ("a user namespace with everybody's numbers", |d, _| {
        in_namespaces(d, json!([user_namespace(json!([[0, 0, u32::MAX]]))]))
    }),
    ("a namespace that belongs to the machine", |d, _| {
        let content = json!({"kind": "uts", "host": "machine", "domain": ""});
        in_namespaces(d, json!([{ "content": content }]))
    }),
    ("a namespace that belongs to none", |d, _| {
        let content = json!({"kind": "mounts"});
        in_namespaces(d, json!([{ "owner": 7, "content": content }]))
    }),
    ("a host name without an end", |d, _| {
        let content = json!({"kind": "uts", "host": "x".repeat(1 << 20), "domain": ""});
        let user = user_namespace(json!([]));
        in_namespaces(d, json!([user, { "owner": 0, "content": content }]))
    }),
    ("mounts of the machine's", |d, _| {
        let mounts = own_mounts(json!([of_memory("/mnt")]), false);
        in_namespaces(d, json!([{ "content": mounts }]))
    }),
    ("a mount above the root", |d, _| among_mounts(d, json!([of_memory("/../../mnt")]), false)),
    ("a mount at no path", |d, _| among_mounts(d, json!([of_memory("mnt")]), false)),
    ("a thousand times a thousand mounts", |d, _| {
        among_mounts(d, json!(vec![of_memory("/mnt"); 100_000]), false)
    }),
    ("a root that is not made", |d, _| among_mounts(d, json!([]), true)),
    ("a root in memory, with nothing in it", |d, _| among_mounts(d, json!([of_memory("/")]), true)),
    ("the machine's disk", |d, _| {
        let mut mount = of_memory("/mnt");
        mount["file_system"] = json!("ext4");
        among_mounts(d, json!([mount]), false)
    }),
    ("a folder of root's", |d, _| {
        let mut mount = of_memory("/mnt");
        mount["source"] = json!({"from": "bound", "path": "/root", "recursive": true});
        among_mounts(d, json!([mount]), false)
    }),
    ("devices", |d, _| {
        let mut mount = of_memory("/mnt");
        mount["options"] = json!("rw,dev,suid");
        among_mounts(d, json!([mount]), false)
    }),
    ("files of a mount that lead out of it", |d, _| {
        let mut mount = of_memory("/mnt");
        mount["source"]["entries"] = json!([
            entry("", json!({"kind": "directory"})),
            entry("out", json!({"kind": "link", "to": "/tmp"})),
            entry("out/made", json!({"kind": "file", "bytes": "00"})),
        ]);
        among_mounts(d, json!([mount]), false)
    }),
    ("files among mounts of no namespace", |d, _| {
        each(list(d, "files"), |file, _| {
            file["inside"] = json!({"namespace": 77, "path": "/etc/passwd"});
        })
    }),
    ("files among mounts that lie above these", |d, _| {
        among_mounts(d, json!([of_memory("/mnt")]), false);
        each(list(d, "files"), |file, _| {
            file["inside"] = json!({"namespace": 1, "path": "/mnt/../../etc/passwd"});
        })
    }),
    ("programs among no mounts of their own", |d, _| {
        each(processes(d), |process, _| process["executable_inside"] = json!("/dev/watchdog"))
    }),
    ("programs that are devices among mounts", |d, _| {
        among_mounts(d, json!([of_memory("/mnt")]), false);
        each(processes(d), |process, _| process["executable_inside"] = json!("/dev/full"))
    }),
    ("files of a mount above it", |d, _| {
        let mut mount = of_memory("/mnt");
        mount["source"]["entries"] = json!([
            entry("", json!({"kind": "directory"})),
            entry("..", json!({"kind": "directory"})),
            entry("../made", json!({"kind": "file", "bytes": "00"})),
        ]);
        among_mounts(d, json!([mount]), false)
    }),
    ("namespaces of users in which nobody is", |d, _| {
        let all = json!([user_namespace(json!([])), { "owner": 0, "content": {"kind": "ipc"} }]);
        in_namespaces(d, all)
            && each(processes(d), |process, place| {
                process["namespaces"] = if place == 0 { json!([0, 1]) } else { json!([1]) };
            })
    }),
    ("another root directory", |d, _| {
        each(processes(d), |process, _| process["root_directory"] = json!("/tmp"))
    }),
    ("everybody shares everything", |d, _| {
        let shares = |node: &mut Value| json!({"pid": node["pid"], "descriptors": true, "directories": true});
        let all: Vec<Value> = nodes(d).into_iter().map(shares).collect();
        d.graph()["sharing"] = json!(all);
        true
    }),
    ("the highest priority", |d, _| {
        each(processes(d), |process, _| {
            process["nice"] = json!(-20);
            process["oom_score_adj"] = json!(-1000);
        })
    }),
    ("real time", |d, _| {
        threads(d, |thread, _| {
            thread["policy"] = json!([1, 99]);
            set_attribute(thread, "schedule", json!({"policy": 1, "priority": 99}));
        })
    }),
    ("real time in an old image", |d, _| {
        threads(d, |thread, _| {
            thread["policy"] = json!([1, 99]);
            thread["attributes"] = Value::Null;
        })
    }),
    ("a deadline", |d, _| {
        let times = json!({"policy": 6, "runtime": 5_000_000, "deadline": 10_000_000, "period": 10_000_000});
        threads(d, |thread, _| set_attribute(thread, "schedule", times.clone()))
    }),
    ("first at every disk", |d, _| {
        threads(d, |thread, _| {
            set_attribute(thread, "io_priority", json!(1 << 13));
            set_attribute(thread, "io_flusher", json!(true));
        })
    }),
    ("attributes that are none", |d, _| {
        threads(d, |thread, _| {
            let most = u32::MAX;
            set_attribute(thread, "personality", json!(most));
            set_attribute(thread, "machine_check", json!(most));
            set_attribute(thread, "speculation", json!(vec![(most, most); 3000]));
            set_attribute(
                thread,
                "memory_policy",
                json!({"mode": most, "nodes": vec![most; 3000]}),
            );
        })
    }),
    ("calls sent back from nowhere", |d, _| {
        let nowhere =
            json!({"mode": 1, "selector": u64::MAX, "offset": u64::MAX, "length": u64::MAX});
        threads(d, |thread, _| set_attribute(thread, "dispatch", nowhere.clone()))
    }),
    ("protection keys that no machine has", |d, _| {
        each(processes(d), |process, _| process["attributes"]["keys"] = json!(u32::MAX))
            && areas(d, |area, _| area["advice"]["key"] = json!(255))
    }),
    ("memory with a key of nobody's", |d, _| areas(d, |area, _| area["advice"]["key"] = json!(9))),
    ("memory with endless names", |d, _| {
        areas(d, |area, _| area["advice"]["name"] = json!("[anon:\u{7}".repeat(5000)))
    }),
    ("filters without no_new_privs", |d, _| filters(d, ALLOW, 0, false)),
    ("filters that are none", |d, _| filters(d, "ff00", 0, true)),
    ("filters of no instructions", |d, _| filters(d, "", 0, true)),
    ("filters that end nowhere", |d, _| filters(d, &"1500ffff00000000".repeat(4000), 0, true)),
    ("filters out of reach", |d, _| filters(d, ALLOW, 77, true)),
    ("strict mode without no_new_privs", |d, _| {
        threads(d, |thread, _| thread["sandbox"] = json!({"strict": true}))
    }),
    ("no limits", |d, _| {
        each(processes(d), |process, _| {
            let limits = (0..40)
                .map(|resource| json!({"resource": resource, "soft": u64::MAX, "hard": u64::MAX}));
            process["limits"] = limits.collect();
        })
    }),
    ("a locked working directory", |d, o| {
        let path = o.locked.clone();
        each(processes(d), |process, _| process["working_directory"] = json!(path))
    }),
    ("threads in a locked working directory", |d, o| {
        let own = json!({"working_directory": o.locked.clone(), "umask": u32::MAX});
        threads(d, |thread, place| {
            if place > 0 {
                thread["directories"] = own.clone();
            }
        })
    }),
    ("threads in another root directory", |d, o| {
        let own = json!({"working_directory": "/", "umask": 0, "root_directory": o.locked.clone()});
        threads(d, |thread, place| {
            if place > 0 {
                thread["directories"] = own.clone();
            }
        })
    }),
    ("threads with directories of nobody's", |d, _| {
        threads(d, |thread, _| thread["directories_of"] = json!(77))
    }),
    ("threads with directories of their own", |d, _| {
        threads(d, |thread, _| thread["directories_of"] = thread["tid"].clone())
    }),
    ("memory of parents", |d, _| shares(d, "memory")),
    ("memory of parents, with nothing of their own", |d, _| {
        shares(d, "memory")
            && each(processes(d), |process, _| {
                process["areas"] = json!([]);
                process["pages"] = json!([]);
            })
    }),
    ("signal actions of parents", |d, _| shares(d, "actions")),
    ("another root directory", |d, o| {
        let path = o.locked.clone();
        each(processes(d), |process, _| process["root_directory"] = json!(path))
    }),
    ("a program of root's", |d, o| {
        let path = o.secret.clone();
        each(processes(d), |process, _| process["executable"]["path"] = json!(path))
    }),
    ("a FIFO for a program", |d, o| {
        let path = o.fifo.clone();
        each(processes(d), |process, _| process["executable"]["path"] = json!(path))
    }),
    ("root's files mapped", |d, o| {
        let path = o.readable.clone();
        areas(d, |area, _| {
            if area["backing"]["backing"] == "file" {
                area["backing"]["file"]["path"] = json!(path);
                area["backing"]["writable"] = json!(true);
                area["shared"] = json!(true);
            }
        })
    }),
    ("areas that overlap", |d, _| areas(d, |area, _| area["end"] = json!(!4095_u64))),
    ("areas without an end", |d, _| areas(d, |area, _| area["start"] = json!(0))),
    ("guards everywhere", |d, _| {
        areas(d, |area, _| {
            area["advice"] = json!({"guards": [[0, u64::MAX], [u64::MAX, 0]], "advise": [-1, 100]});
        })
    }),
    ("offsets at the edge", |d, _| {
        areas(d, |area, _| {
            if area["backing"].get("offset").is_some() {
                area["backing"]["offset"] = json!(!4095_u64);
            }
        })
    }),
    ("places beyond a ring of asynchronous input and output", |d, _| {
        aio(d, |area| area["backing"]["head"] = json!(u32::MAX))
            && aio(d, |area| area["backing"]["tail"] = json!(1 << 20))
    }),
    ("more events than a ring of asynchronous input and output has", |d, _| {
        aio(d, |area| area["backing"]["tail"] = area["backing"]["head"].clone())
    }),
    ("events of asynchronous input and output from nowhere", |d, _| {
        aio(d, |area| area["backing"]["events"] = json!(u32::MAX))
    }),
    ("a huge ring of asynchronous input and output", |d, _| {
        aio(d, |area| area["end"] = json!(area["end"].as_u64().unwrap_or(0) + (1 << 31)))
    }),
    ("a private ring of asynchronous input and output", |d, _| {
        aio(d, |area| area["shared"] = json!(false)) && aio(d, |area| area["protection"] = json!(7))
    }),
    ("windows at the edge", |d, _| {
        each(processes(d), |process, _| {
            for window in process["pages"].as_array_mut().into_iter().flatten() {
                window[0] = json!(!0x3ffff_u64);
            }
        })
    }),
    ("memory maps at the edge", |d, _| {
        each(processes(d), |process, _| process["memory_map"] = json!(vec![u64::MAX; 11]))
    }),
    ("a long auxiliary vector", |d, _| {
        each(processes(d), |process, _| process["auxv"] = json!("ff".repeat(1 << 20)))
    }),
    ("registers that are none", |d, _| threads(d, |thread, _| thread["registers"] = json!("00"))),
    ("registers at the edge", |d, _| {
        threads(d, |thread, _| {
            let digits = thread["registers"].as_str().map_or(0, str::len);
            thread["registers"] = json!("f".repeat(digits));
        })
    }),
    ("extended registers at the edge", |d, _| {
        threads(d, |thread, _| {
            for set in thread["extended"].as_array_mut().into_iter().flatten() {
                let bytes = set[1].as_str().map_or(0, length);
                set[1] = json!("ff".repeat(bytes));
            }
        })
    }),
    ("more extended registers than there is memory", |d, _| {
        threads(d, |thread, _| {
            for set in thread["extended"].as_array_mut().into_iter().flatten() {
                set[1] = json!(format!("({})", u64::MAX / 2));
            }
        })
    }),
    ("a thread a thousand times", |d, _| {
        each(processes(d), |process, _| {
            if let Some(threads) = process["threads"].as_array_mut() {
                let first = threads.first().cloned().unwrap_or_default();
                threads.extend(std::iter::repeat_n(first, 1000));
            }
        })
    }),
    ("threads below zero", |d, _| {
        each(processes(d), |process, _| {
            if let Some(threads) = process["threads"].as_array_mut() {
                let mut other = threads.first().cloned().unwrap_or_default();
                other["tid"] = json!(-3);
                threads.push(other);
            }
        })
    }),
    ("an rseq area in the kernel", |d, _| {
        threads(d, |thread, _| {
            thread["rseq"] = json!({"address": u64::MAX - 31, "size": 32, "signature": 1});
        })
    }),
    ("robust mutexes without an end", |d, _| {
        threads(d, |thread, _| {
            thread["robust_list"] = json!({"head": u64::MAX - 7, "length": 24});
        })
    }),
    ("the rest of a sleep in the kernel", |d, _| {
        threads(d, |thread, _| thread["rest"] = json!([u64::MAX - 15, [1, 1]]))
    }),
    ("processors that are nobody's", |d, _| threads(d, |thread, _| thread["affinity"] = json!([]))),
    ("signals that are none", |d, _| {
        each(processes(d), |process, _| {
            let info = |signal: i32| {
                let bytes = signal.to_ne_bytes();
                let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                json!({"siginfo": digits + &"00".repeat(124)})
            };
            process["pending"] = json!([info(-1), info(0), info(9), info(19), info(i32::MAX)]);
            process["stopped_by"] = json!(-9);
        })
    }),
    ("a long signal", |d, _| {
        each(processes(d), |process, _| {
            process["pending"] =
                json!([{"siginfo": "0a000000".to_owned() + &"00".repeat(1 << 20)}]);
        })
    }),
    ("a long name", |d, _| threads(d, |thread, _| thread["comm"] = json!("é".repeat(40_000)))),
    ("another process's image", |d, _| each(processes(d), |process, _| process["pid"] = json!(1))),
    ("relays of nobody", |d, _| {
        let end = json!({"id": "x", "side": 9, "kind": "pipe_read"});
        set(d.graph(), "relays", json!(vec![json!({"end": end, "undelivered": u32::MAX}); 50]))
    }),
    ("remote shells of nobody", |d, _| {
        let descriptor = json!({"fd": 0, "file": 0, "close_on_exec": false});
        let shell = json!({"pid": 4, "descriptors": vec![descriptor; 100]});
        set(d.graph(), "remote_shells", json!([shell]))
    }),
    ("a machine of strange registers", |d, _| {
        let part = json!({"number": 63, "offset": u32::MAX, "size": u32::MAX});
        set(d.graph(), "layout", json!(vec![part; 1000]))
    }),
    ("a vdso that is none", |d, _| {
        set(d.graph(), "vdso_image", json!(0)) && { set(d.graph(), "vdso", json!("00")) }
    }),
    ("locks at the edge", |d, _| {
        each(list(d, "files"), |file, _| {
            file["locks"] = json!([{"kind": "description", "exclusive": true,
                "start": u64::MAX, "length": u64::MAX}]);
        })
    }),
    ("owners that are everybody", |d, _| {
        each(list(d, "files"), |file, _| {
            file["owner"] = json!({"kind": "process", "pid": -1, "signal": 9});
        })
    }),
];

/// A filter that allows everything: one instruction.
const ALLOW: &str = "060000000000ff7f";

/// Puts all threads under a filter, if it is where they expect it.
fn filters(documents: &mut Documents, instructions: &str, place: u32, seals_rights: bool) -> bool {
    let filter = json!({"instructions": instructions});
    each(processes(documents), |process, _| process["filters"] = json!([filter]));
    threads(documents, |thread, _| {
        thread["sandbox"] = json!({"filters": [place]});
        thread["no_new_privs"] = json!(seals_rights);
    })
}

/// Has every process share this with its parent.
fn shares(documents: &mut Documents, what: &str) -> bool {
    let all: Vec<Value> = nodes(documents)
        .into_iter()
        .map(|node| {
            let mut one = json!({ "pid": node["pid"] });
            one[what] = json!(true);
            one
        })
        .collect();
    documents.graph()["sharing"] = json!(all);
    true
}

fn set_attribute(thread: &mut Value, name: &str, to: Value) {
    if !thread["attributes"].is_object() {
        thread["attributes"] = json!({"personality": 0});
    }
    thread["attributes"][name] = to;
}

/// Bytes of hexadecimal text in which zeros may be counted: `7f(24)80`.
fn length(text: &str) -> usize {
    let parts = text.split(['(', ')']).enumerate();
    parts
        .map(|(at, part)| if at % 2 == 0 { part.len() / 2 } else { part.parse().unwrap_or(0) })
        .sum()
}

fn set(value: &mut Value, key: &str, to: Value) -> bool {
    value[key] = to;
    true
}

fn each(all: Vec<&mut Value>, mut change: impl FnMut(&mut Value, usize)) -> bool {
    let any = !all.is_empty();
    all.into_iter().enumerate().for_each(|(at, one)| change(one, at));
    any
}

/// Puts every process into all of these namespaces.
fn in_namespaces(documents: &mut Documents, all: Value) -> bool {
    let places: Vec<usize> = (0..all.as_array().map_or(0, Vec::len)).collect();
    documents.graph()["namespaces"] = all;
    each(processes(documents), |process, _| process["namespaces"] = json!(places))
}

fn user_namespace(ranges: Value) -> Value {
    let content = json!({"kind": "user", "uids": ranges, "gids": ranges, "may_set_groups": true});
    json!({ "content": content })
}

fn own_mounts(mounts: Value, pivot: bool) -> Value {
    json!({"kind": "own_mounts", "mounts": mounts, "pivot": pivot, "private": true})
}

/// Puts every process among these mounts, in a user namespace of its own.
fn among_mounts(documents: &mut Documents, mounts: Value, pivot: bool) -> bool {
    let content = own_mounts(mounts, pivot);
    let user = user_namespace(json!([]));
    in_namespaces(documents, json!([user, { "owner": 0, "content": content }]))
}

fn of_memory(at: &str) -> Value {
    json!({"at": at, "root": "/", "file_system": "tmpfs", "options": "rw,relatime",
        "source": {"from": "made", "data": "size=1m", "entries": []}})
}

fn entry(path: &str, content: Value) -> Value {
    json!({"path": path, "mode": 0o4777, "owner": [0, 0], "modified_ns": 0, "content": content})
}

fn list<'d>(documents: &'d mut Documents, key: &str) -> Vec<&'d mut Value> {
    documents.graph()[key].as_array_mut().into_iter().flatten().collect()
}

fn nodes(documents: &mut Documents) -> Vec<&mut Value> {
    list(documents, "processes")
}

fn again(documents: &mut Documents, times: usize) -> bool {
    let Some(processes) = documents.graph()["processes"].as_array_mut() else { return false };
    let Some(last) = processes.last().cloned() else { return false };
    processes.extend(std::iter::repeat_n(last, times));
    true
}

fn objects(documents: &mut Documents) -> Vec<&mut Value> {
    list(documents, "files").into_iter().filter_map(|file| file.get_mut("object")).collect()
}

fn processes(documents: &mut Documents) -> Vec<&mut Value> {
    documents.processes().collect()
}

fn drop_key(object: &mut Value, kind: &str, key: &str) {
    if object["kind"] == kind {
        if let Some(members) = object.as_object_mut() {
            members.remove(key);
        }
    }
}

fn inner(documents: &mut Documents, key: &str, mut change: impl FnMut(&mut Value, usize)) -> bool {
    let all = documents.processes().filter_map(|process| process[key].as_array_mut());
    each(all.flatten().collect(), &mut change)
}

fn descriptors(documents: &mut Documents, change: impl FnMut(&mut Value, usize)) -> bool {
    inner(documents, "descriptors", change)
}

fn threads(documents: &mut Documents, change: impl FnMut(&mut Value, usize)) -> bool {
    inner(documents, "threads", change)
}

fn areas(documents: &mut Documents, change: impl FnMut(&mut Value, usize)) -> bool {
    inner(documents, "areas", change)
}

fn aio(documents: &mut Documents, change: impl Fn(&mut Value)) -> bool {
    let mut any = false;
    areas(documents, |area, _| {
        if area["backing"]["backing"] == "aio" {
            change(area);
            any = true;
        }
    });
    any
}

fn credentials(documents: &mut Documents, change: impl Fn(&mut Value)) -> bool {
    threads(documents, |thread, _| change(&mut thread["credentials"]))
}

fn ports(documents: &mut Documents, kind: &str) -> bool {
    let all = objects(documents).into_iter().filter(|object| object["kind"] == kind);
    each(all.collect(), |object, at| {
        let host = if object["v6"] == true { "[::]" } else { "0.0.0.0" };
        object["local"] = json!(format!("{host}:{}", 20 + at));
        object["state"] = json!({"state": "listening", "backlog": 5});
    })
}

fn by_path(documents: &mut Documents, path: &str) -> bool {
    for file in list(documents, "files") {
        file["flags"] = json!(2);
        file["object"] = json!({"kind": "regular", "content": "by_path", "path": path, "offset": 0, "size": 0,
            "modified_ns": 0});
    }
    true
}

fn pseudo(documents: &mut Documents, path: &str) -> bool {
    for file in list(documents, "files") {
        file["flags"] = json!(2);
        file["object"] = json!({"kind": "pseudo_file", "path": path, "offset": 0});
    }
    true
}
