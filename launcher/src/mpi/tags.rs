//! Tags by which a run time tells, on its users' wish, which rank has written a line.
//!
//! A launcher hands the output of all ranks on as one, so that only what it writes into it tells them apart.

use super::recognise::is_launcher_name;
use std::path::Path;

/// How users have ranks told apart, for those who have not.
pub const HOW: &str = "its output does not tell ranks apart; jobs that are run with 'mpirun --tag-output' of Open MPI, or \
                       with 'mpiexec -prepend-rank' of MPICH or Intel MPI, do";

/// The forms that are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tags {
    /// `[JOB,RANK]<STREAM>:`, of Open MPI; in the midst of a line, too, where another rank's did not end.
    OpenMpi,
    /// `[RANK] ` at the beginning of a line, of Hydra.
    Hydra,
}

impl Tags {
    /// Those that a command has its launcher write, if it is one. What stands in a script or in the environment is not seen.
    pub fn of(command: &[String]) -> Option<Self> {
        let (program, arguments) = command.split_first()?;
        let base = Path::new(program).file_name()?.to_str()?;
        if !is_launcher_name(base) {
            return None;
        }
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            // Both forms are taken by either family.
            match argument.strip_prefix('-').map(|option| option.trim_start_matches('-')) {
                Some("tag-output") => return Some(Self::OpenMpi),
                Some("output") => {
                    let wishes = arguments.next().map(String::as_str).unwrap_or_default();
                    if wishes.split(',').any(|wish| wish == "tag") {
                        return Some(Self::OpenMpi);
                    }
                }
                Some("prepend-rank") => return Some(Self::Hydra),
                _ => {}
            }
        }
        None
    }

    /// What that rank has written of a line, tags and all.
    pub fn of_rank(self, line: &[u8], rank: u32) -> Vec<u8> {
        let starts = self.starts(line);
        let ends = starts.iter().skip(1).map(|(at, _)| *at).chain([line.len()]);
        let of_it = starts.iter().zip(ends).filter(|((_, of), _)| *of == rank);
        of_it.filter_map(|((from, _), to)| line.get(*from..to)).flatten().copied().collect()
    }

    /// The highest rank that has written into a line.
    pub fn highest(self, line: &[u8]) -> Option<u32> {
        self.starts(line).into_iter().map(|(_, rank)| rank).max()
    }

    /// Where what a rank has written begins in a line, and the rank.
    fn starts(self, line: &[u8]) -> Vec<(usize, u32)> {
        match self {
            Self::Hydra => hydra(line).map(|rank| (0, rank)).into_iter().collect(),
            Self::OpenMpi => {
                let starts =
                    (0..line.len()).filter_map(|at| Some((at, open_mpi(line.get(at..)?)?)));
                starts.collect()
            }
        }
    }
}

/// The number before `end`, and what follows that.
fn number<'a>(text: &'a [u8], end: &[u8]) -> Option<(u32, &'a [u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at_checked(digits)?;
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((number, rest.strip_prefix(end)?))
}

/// The rank of a tag at the beginning of this.
fn open_mpi(text: &[u8]) -> Option<u32> {
    let (_job, rest) = number(text.strip_prefix(b"[")?, b",")?;
    let (rank, rest) = number(rest, b"]<")?;
    let streams = ["stdout", "stderr", "stddiag"];
    let is_tag = |stream: &str| {
        rest.strip_prefix(stream.as_bytes()).is_some_and(|rest| rest.starts_with(b">:"))
    };
    streams.into_iter().any(is_tag).then_some(rank)
}

fn hydra(text: &[u8]) -> Option<u32> {
    number(text.strip_prefix(b"[")?, b"] ").map(|(rank, _)| rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(command: &str) -> Option<Tags> {
        Tags::of(&command.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_command_tells_whether_there_are_tags() {
        for command in [
            "mpirun --tag-output -np 2 ./a",
            "/usr/bin/mpirun.openmpi -np 2 -tag-output ./a",
            "mpirun --output merge,tag ./a",
        ] {
            assert_eq!(of(command), Some(Tags::OpenMpi), "{command}");
        }
        assert_eq!(of("mpiexec.hydra -n 3 -prepend-rank ./a"), Some(Tags::Hydra));
        for command in [
            "mpirun -np 2 ./a",
            "./a --tag-output",
            "mpirun --output tag-detailed ./a",
            "mpirun ls -l",
            "mpirun --output",
        ] {
            assert_eq!(of(command), None, "{command}");
        }
        assert_eq!(Tags::of(&[]), None);
    }

    #[test]
    fn lines_are_those_of_the_rank_in_their_tag() {
        let text = |tags: Tags, line: &str, rank| {
            String::from_utf8(tags.of_rank(line.as_bytes(), rank)).unwrap()
        };
        let line = "[1,0]<stdout>:b[1,11]<stdout>: out\r\n";
        assert_eq!(text(Tags::OpenMpi, line, 0), "[1,0]<stdout>:b");
        assert_eq!(text(Tags::OpenMpi, line, 11), "[1,11]<stdout>: out\r\n");
        assert_eq!(text(Tags::OpenMpi, line, 1), "");
        for line in [
            "[1,0]<stdin>:x\n",
            "[0] x\n",
            "x [1,0]\n",
            "[,]<stdout>:",
            "[99999999999,1]<stdout>:",
            "",
        ] {
            assert_eq!(text(Tags::OpenMpi, line, 0), "", "{line}");
        }
        let highest = |tags: Tags, line: &str| tags.highest(line.as_bytes());
        assert_eq!(highest(Tags::OpenMpi, "[1,11]<stdout>:b[1,0]<stdout>: out\n"), Some(11));
        assert_eq!(
            (highest(Tags::OpenMpi, "[3] x\n"), highest(Tags::Hydra, "[3] x\n")),
            (None, Some(3))
        );
        assert_eq!(text(Tags::Hydra, "[3] x\n", 3), "[3] x\n");
        assert_eq!(text(Tags::Hydra, "[3] x\n", 4), "");
        assert_eq!(text(Tags::Hydra, "a [3] x\n", 3), "");
    }
}
