//! Lines of the command tree. One that was replaced is told by its number.

use ckpt_node::{Event, LineEvent};
use command_tree::Line;
use protocol::cluster::NodeName;
use protocol::cluster::tree::TreeMessage;

use super::Driver;
use crate::driver::line_queue::Queue;

impl Driver {
    pub(super) fn line_accepted(&mut self, node: NodeName, number: u64, queue: Queue) -> Event {
        let line = Line { node: node.clone(), ours: false };
        self.lines.insert(line, (number, queue));
        Event::Line(LineEvent::Accepted(node))
    }

    pub(super) fn line_heard(&mut self, line: Line, number: u64, message: Box<TreeMessage>) {
        if self.is_current(&line, number) {
            self.events.push_back(Event::Line(LineEvent::Heard(line, message)));
        }
    }

    pub(super) fn line_broken(&mut self, line: Line, number: u64) {
        if self.is_current(&line, number) {
            self.lines.remove(&line);
            self.events.push_back(Event::Line(LineEvent::Broken(line)));
        }
    }

    fn is_current(&self, line: &Line, number: u64) -> bool {
        self.lines.get(line).is_some_and(|(known, _)| *known == number)
    }

    pub(super) fn open_line(&mut self, node: NodeName) {
        let line = self.parts.lines.dial(node.clone(), self.parts.peers.clone());
        self.lines.insert(Line { node, ours: true }, line);
    }

    pub(super) fn send_line(&self, line: &Line, message: TreeMessage) {
        // One that has broken meanwhile is reported by itself.
        if let Some((_, queue)) = self.lines.get(line) {
            queue.push(message);
        }
    }

    pub(super) fn clear_line(&self, line: &Line) {
        if let Some((_, queue)) = self.lines.get(line) {
            queue.clear();
        }
    }
}
