use super::super::probe::FdInfo;
use super::look::{buffers, file_names};
use super::registered::{escaped, told};

#[test]
fn registered_things_are_read() {
    let text = "UserFiles:\t4\n    0: /tmp/a\\040b\n    2: anon_inode:[eventfd]\n    3: <none>\nUserBufs:\t2\n    \
                1: 0x7f0012340000/4096\nPollList:\n  op=6, task_works=0\nCqOverflowList:\nNAPI:\tdisabled\n";
    let info = FdInfo::parse(text.to_owned());
    let (found, held) = (file_names(&info).unwrap(), buffers(&info).unwrap());
    let expected = [Some("/tmp/a\\040b"), None, Some("anon_inode:[eventfd]"), None];
    assert_eq!(found.iter().map(Option::as_deref).collect::<Vec<_>>(), expected);
    assert_eq!(held, [None, Some((0x7f00_1234_0000, 4096))]);
    assert_eq!(info.below("PollList").count(), 1);
    assert_eq!(info.below("CqOverflowList").count(), 0);
    let odd = text.replace("    2: anon", "    7: anon");
    assert!(file_names(&FdInfo::parse(odd)).is_err());
}

#[test]
fn paths_are_written_as_the_kernel_writes_them() {
    assert_eq!(escaped("/tmp/a b\\c\n"), "/tmp/a\\040b\\134c\\012");
}

#[test]
fn files_are_known_by_path_or_by_its_last_part() {
    let names = |full: &str, last: &str| Some([full.to_owned(), last.to_owned()]);
    assert_eq!(told("/tmp/a b"), names("/tmp/a\\040b", "a b"));
    assert_eq!(told("/tmp/c (deleted)"), names("/tmp/c\\040(deleted)", "c"));
    assert_eq!(told("anon_inode:[eventfd]"), names("anon_inode:[eventfd]", "[eventfd]"));
    assert_eq!(told("/proc/7/maps"), None);
    assert_eq!(told("anon_inode:[pidfd]"), None);
}
