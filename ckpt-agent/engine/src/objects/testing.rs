//! What tests of handlers share: a dump and a restore of descriptors of the test process itself.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::super::error::Result;
use super::super::graph::{Blob, BlobId, Clocks, FileId, GRAPH_VERSION, Graph, OpenFile};
use super::{BlobData, BlobSource, DumpContext, FdInfo, Object, Probe, RestoreContext};

/// Bytes of a dump, kept in memory.
pub struct Kept(pub Vec<Vec<u8>>);

impl BlobSource for Kept {
    fn read(&self, _graph: &Graph, id: BlobId) -> Result<Vec<u8>> {
        Ok(self.0[id.0 as usize].clone())
    }

    fn copy_to(&self, _graph: &Graph, id: BlobId, to: BorrowedFd<'_>) -> Result<()> {
        fs::write(format!("/proc/self/fd/{}", to.as_raw_fd()), &self.0[id.0 as usize]).unwrap();
        Ok(())
    }

    fn for_each_span(
        &self,
        _graph: &Graph,
        id: BlobId,
        each: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        each(0, &self.0[id.0 as usize])
    }
}

/// A blob's bytes, holes as zeros.
fn content(blob: &BlobData) -> Vec<u8> {
    let mut bytes = vec![0; blob.length as usize];
    for extent in &blob.extents {
        let at = extent.offset as usize;
        let part = extent.bytes.clone().into_memory().unwrap();
        bytes[at..at + part.len()].copy_from_slice(&part);
    }
    bytes
}

/// A descriptor of this process as a dump would see it.
pub fn probe(fd: impl AsFd) -> Probe {
    let fd = fd.as_fd();
    let number = fd.as_raw_fd();
    let pid = std::process::id() as i32;
    Probe {
        host_pid: pid,
        pid,
        comm: "test".into(),
        fd: number,
        copy: fd.try_clone_to_owned().unwrap(),
        flags: nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_GETFL).unwrap(),
        stat: nix::sys::stat::fstat(fd).unwrap(),
        root: "/proc/self/root".into(),
        is_in_memory: false,
        shown: String::new(),
        link: fs::read_link(format!("/proc/self/fd/{number}")).unwrap().display().to_string(),
        info: FdInfo::parse(fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap()),
    }
}

/// A finished dump.
pub struct Dumped {
    pub files: Vec<OpenFile>,
    pub context: DumpContext,
}

/// Dumps descriptors of this process, a different description each.
pub fn try_dump(fds: &[BorrowedFd<'_>], context: DumpContext) -> Result<Dumped> {
    dump_in_step(fds, context, || {})
}

/// As [`try_dump`]; `others` waits until all instances have come as far as [`Object::finish_all`].
pub fn dump_in_step(
    fds: &[BorrowedFd<'_>],
    mut context: DumpContext,
    others: impl FnOnce(),
) -> Result<Dumped> {
    let pid = std::process::id() as i32;
    context.pids.insert(pid, pid);
    let probes: Vec<Probe> = fds.iter().map(probe).collect();
    let mut files = Vec::new();
    for probe in &probes {
        files.push(OpenFile {
            flags: probe.flags,
            owner: None,
            locks: Vec::new(),
            object: Object::dump(probe, &mut context)?,
            inside: None,
            network: None,
        });
    }
    let finished = Object::finish_all(&mut files, &probes, &mut context);
    others();
    finished?;
    Object::late_all(&mut files, &probes, &mut context)?;
    Ok(Dumped { files, context })
}

/// As [`try_dump`], must not fail.
pub fn dump(fds: &[BorrowedFd<'_>]) -> Dumped {
    try_dump(fds, DumpContext::default()).unwrap()
}

impl Dumped {
    /// The graph, through its written form and back.
    pub fn graph(&self) -> Graph {
        let graph = Graph {
            version: GRAPH_VERSION,
            architecture: "x86_64".into(),
            page_size: 4096,
            clocks: Clocks { monotonic_ns: 0, boottime_ns: 0, realtime_ns: 0 },
            vdso: String::new(),
            vdso_image: None,
            layout: Vec::new(),
            offers: Vec::new(),
            root: 2,
            init: 0,
            processes: Vec::new(),
            files: self.files.clone(),
            inodes: Vec::new(),
            folders: Vec::new(),
            kept: Default::default(),
            ipc: crate::graph::IpcObjects::default(),
            namespaces: Vec::new(),
            sharing: Vec::new(),
            relays: Vec::new(),
            remote_shells: Vec::new(),
            blobs: self
                .context
                .blobs
                .iter()
                .map(|blob| Blob { length: blob.length, spans: Vec::new() })
                .collect(),
        };
        serde_json::from_str(&serde_json::to_string(&graph).unwrap()).unwrap()
    }

    /// Makes everything again; descriptors in the order of the dump.
    pub fn restore(&self) -> Restored {
        self.try_restore().unwrap()
    }

    /// As [`Dumped::restore`].
    pub fn try_restore(&self) -> Result<Restored> {
        self.restore_with(|_| {})
    }

    /// A blob's bytes.
    pub fn blob(&self, id: BlobId) -> Vec<u8> {
        content(&self.context.blobs[id.0 as usize])
    }

    /// As [`Dumped::try_restore`], in a context that `prepare` completes.
    pub fn restore_with(&self, prepare: impl FnOnce(&mut RestoreContext<'_>)) -> Result<Restored> {
        let graph = self.graph();
        let kept = Kept(self.context.blobs.iter().map(content).collect());
        let mut context = RestoreContext::new(&graph, &kept, false, 512);
        prepare(&mut context);
        Object::restore_all(&graph.files, &mut context)?;
        let mut fds = Vec::new();
        for (index, file) in graph.files.iter().enumerate() {
            let fd = context.parked(FileId(index as u32))?.try_clone_to_owned().unwrap();
            let status = file.flags & (libc::O_NONBLOCK | libc::O_APPEND);
            nix::fcntl::fcntl(
                &fd,
                nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::from_bits_truncate(status)),
            )
            .unwrap();
            fds.push(fd);
        }
        let warnings = std::mem::take(&mut context.warnings);
        let console = std::mem::take(&mut context.console);
        let moved = std::mem::take(&mut context.moved)
            .into_iter()
            .filter(|listener| listener.logical != listener.actual)
            .map(|listener| (listener.logical, listener.actual))
            .collect();
        Ok(Restored { fds, warnings, console, moved })
    }
}

/// What a restore made.
pub struct Restored {
    pub fds: Vec<OwnedFd>,
    pub warnings: Vec<String>,
    pub console: super::Console,
    pub moved: Vec<(std::net::SocketAddr, std::net::SocketAddr)>,
}
