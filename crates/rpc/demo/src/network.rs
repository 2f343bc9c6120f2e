//! The lab's network: a namespace for each client, one for the servers, one for the router with the overloaded port.
//!
//! Method: veth pairs join each host to the router, which forwards by routes. The router's port to the servers is an HTB:
//! one class for each DSCP, each with its part of the line as rate (by weight) and the line as ceiling, which is weighted
//! fair queueing: who has nothing to send leaves its part to the others. Borrowing is a deficit round robin whose quantum
//! follows the weights too. Buckets hold two packets, so that no class runs ahead of the line.
//! Packets are real: segmentation offload is off, or the port would schedule 64 KiB at a time. Queues are long enough that
//! nothing is lost in the port: congestion shows as delay.
//! Limits: answers travel back unshaped. Names begin with `isolane-lab-` and the process; what an earlier lab that was
//! killed left behind is removed first. The namespaces' settings are their own: nothing of the machine's is changed.

use crate::error::LabError;
use crate::plan::Plan;
use isolane_common_linux::command::{run, run_words};
use isolane_common_linux::namespaces;

/// Prefix of all namespaces of all labs.
const PREFIX: &str = "isolane-lab-";
/// Ethernet, IP and TCP headers with time stamps: bytes of a segment beside its payload, as the port counts them.
pub const HEADERS: u32 = 14 + 20 + 20 + 12;
/// Queue length of a class at the port: far more than a period's burst, so no packet is dropped.
const QUEUE_PACKETS: u32 = 20_000;
/// Device of the router towards the servers.
const PORT: &str = "servers";

/// The namespaces; removed when dropped.
#[derive(Debug)]
pub struct Network {
    name: String,
    clients: usize,
    keep: bool,
}

/// Traffic of one class of the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ClassCount {
    /// Bytes sent, with headers.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets dropped: zero, unless the queue was too short.
    pub dropped: u64,
}

impl ClassCount {
    /// Traffic after `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            bytes: self.bytes - earlier.bytes,
            packets: self.packets - earlier.packets,
            dropped: self.dropped - earlier.dropped,
        }
    }
}

impl Network {
    /// Builds the network of `plan` for `clients` clients. Fails if the caller is not root, or the machine lacks a
    /// part; nothing is left behind.
    pub fn build(plan: &Plan, clients: usize, keep: bool) -> Result<Self, LabError> {
        require_root()?;
        namespaces::remove_stale(PREFIX);
        let mut network = Self {
            name: format!("{PREFIX}{}", namespaces::maker()),
            clients,
            keep: false,
        };
        network.make(plan)?;
        network.keep = keep;
        Ok(network)
    }

    fn make(&self, plan: &Plan) -> Result<(), LabError> {
        let mtu = plan.link_mtu;
        for space in self.spaces() {
            run(&format!("ip netns add {space}"))?;
            run(&format!("ip -n {space} link set lo up"))?;
        }
        self.join(&self.servers(), PORT, 0, mtu)?;
        for client in 0..self.clients {
            self.join(&self.client(client), &format!("c{client}"), client + 1, mtu)?;
        }
        set(&self.router(), "ip_forward", "1")?;
        for space in self.spaces() {
            // The machine's default may pace by itself; Reno is always available and needs no permission.
            set(&space, "tcp_congestion_control", "reno")?;
        }
        self.shape(plan)
    }

    /// Joins the namespace `space` to the router by a pair of devices in the network 10.77.`subnet`.0/24.
    fn join(&self, space: &str, device: &str, subnet: usize, mtu: u32) -> Result<(), LabError> {
        let router = self.router();
        run(&format!(
            "ip -n {router} link add {device} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {space}"
        ))?;
        run(&format!(
            "ip -n {router} addr add 10.77.{subnet}.1/24 dev {device}"
        ))?;
        run(&format!(
            "ip -n {space} addr add 10.77.{subnet}.2/24 dev eth0"
        ))?;
        run(&format!(
            "ip -n {router} link set {device} up gso_max_segs 1"
        ))?;
        run(&format!("ip -n {space} link set eth0 up gso_max_segs 1"))?;
        run(&format!(
            "ip -n {space} route add default via 10.77.{subnet}.1"
        ))?;
        Ok(())
    }

    fn shape(&self, plan: &Plan) -> Result<(), LabError> {
        for line in shape_commands(plan) {
            run(&format!("tc -n {} {line}", self.router()))?;
        }
        Ok(())
    }

    /// Namespace of the `index`th client.
    pub fn client(&self, index: usize) -> String {
        format!("{}-c{index}", self.name)
    }

    /// Namespace of all servers.
    pub fn servers(&self) -> String {
        format!("{}-s", self.name)
    }

    fn router(&self) -> String {
        format!("{}-r", self.name)
    }

    fn spaces(&self) -> Vec<String> {
        let clients = (0..self.clients).map(|index| self.client(index));
        [self.servers(), self.router()]
            .into_iter()
            .chain(clients)
            .collect()
    }

    /// Address and port of the `index`th server.
    pub fn server_address(index: usize) -> String {
        format!("10.77.0.2:{}", 7001 + index)
    }

    /// Traffic of each class of the port so far, in the order of the classes. Fails if `tc` does.
    pub fn counts(&self, classes: usize) -> Result<Vec<ClassCount>, LabError> {
        let text = run(&format!("tc -n {} -s class show dev {PORT}", self.router()))?;
        Ok((1..=classes)
            .map(|class| parse_count(&text, class))
            .collect())
    }

    /// A command that enters the namespaces, if they are kept.
    pub fn hint(&self) -> Option<String> {
        self.keep.then(|| {
            format!(
                "kept: ip netns exec {} tc -s class show dev {PORT}; remove with the next lab, or: for n in {}; do ip netns del $n; done",
                self.router(),
                self.spaces().join(" ")
            )
        })
    }

    fn remove(&self) {
        for space in self.spaces() {
            let _ = run(&format!("ip netns del {space}"));
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if !self.keep {
            self.remove();
        }
    }
}

/// Sets an IPv4 setting of the namespace `space`.
fn set(space: &str, key: &str, value: &str) -> Result<(), LabError> {
    let script = format!("echo {value} > /proc/sys/net/ipv4/{key}");
    run_words("ip", &["netns", "exec", space, "sh", "-c", &script])?;
    Ok(())
}

/// The commands that make the port of the router, without `tc`.
fn shape_commands(plan: &Plan) -> Vec<String> {
    let line = plan.line_bit_per_s;
    let packet = plan.link_mtu + 14;
    let burst = 2 * packet;
    let sum: u32 = plan.weights.iter().sum();
    let last = plan.weights.len();
    let mut commands = vec![
        format!("qdisc add dev {PORT} root handle 1: htb default {last}"),
        format!(
            "class add dev {PORT} parent 1: classid 1:100 htb rate {line}bit ceil {line}bit burst {burst} cburst {burst} quantum {packet}"
        ),
    ];
    for (index, &weight) in plan.weights.iter().enumerate() {
        let class = index + 1;
        let rate = line * u64::from(weight) / u64::from(sum);
        let quantum = packet * weight;
        commands.push(format!(
            "class add dev {PORT} parent 1:100 classid 1:{class} htb rate {rate}bit ceil {line}bit \
             burst {burst} cburst {burst} quantum {quantum}"
        ));
        commands.push(format!(
            "qdisc add dev {PORT} parent 1:{class} handle {class}0: pfifo limit {QUEUE_PACKETS}"
        ));
        let field = u32::from(plan.dscp[index]) << 2;
        commands.push(format!(
            "filter add dev {PORT} parent 1: protocol ip prio 1 u32 match ip dsfield {field:#04x} 0xfc flowid 1:{class}"
        ));
    }
    commands
}

/// Reads the counters of class 1:`class` from the text of `tc -s class show`.
fn parse_count(text: &str, class: usize) -> ClassCount {
    let head = format!("class htb 1:{class} ");
    let mut lines = text.lines().skip_while(|line| !line.starts_with(&head));
    let sent = lines.nth(1).unwrap_or_default();
    let number_after = |word: &str, ahead: bool| {
        let words: Vec<&str> = sent
            .split([' ', '(', ',', ')'])
            .filter(|word| !word.is_empty())
            .collect();
        let at = words.iter().position(|&found| found == word)?;
        let at = if ahead { at.checked_sub(1)? } else { at + 1 };
        words.get(at)?.parse().ok()
    };
    ClassCount {
        bytes: number_after("Sent", false).unwrap_or(0),
        packets: number_after("pkt", true).unwrap_or(0),
        dropped: number_after("dropped", false).unwrap_or(0),
    }
}

/// Checks the permission to make namespaces. Fails if the caller is not root.
pub fn require_root() -> Result<(), LabError> {
    if namespaces::is_root() {
        return Ok(());
    }
    Err(LabError::Machine(
        "the lab makes network namespaces, which needs root; run it with sudo (it changes nothing outside them)"
            .to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn the_port_has_a_class_for_each_dscp() {
        let commands = shape_commands(&Plan::quick());
        expect![[r#"
            qdisc add dev servers root handle 1: htb default 3
            class add dev servers parent 1: classid 1:100 htb rate 100000000bit ceil 100000000bit burst 10268 cburst 10268 quantum 5134
            class add dev servers parent 1:100 classid 1:1 htb rate 61538461bit ceil 100000000bit burst 10268 cburst 10268 quantum 41072
            qdisc add dev servers parent 1:1 handle 10: pfifo limit 20000
            filter add dev servers parent 1: protocol ip prio 1 u32 match ip dsfield 0xb8 0xfc flowid 1:1
            class add dev servers parent 1:100 classid 1:2 htb rate 30769230bit ceil 100000000bit burst 10268 cburst 10268 quantum 20536
            qdisc add dev servers parent 1:2 handle 20: pfifo limit 20000
            filter add dev servers parent 1: protocol ip prio 1 u32 match ip dsfield 0x68 0xfc flowid 1:2
            class add dev servers parent 1:100 classid 1:3 htb rate 7692307bit ceil 100000000bit burst 10268 cburst 10268 quantum 5134
            qdisc add dev servers parent 1:3 handle 30: pfifo limit 20000
            filter add dev servers parent 1: protocol ip prio 1 u32 match ip dsfield 0x28 0xfc flowid 1:3"#]]
        .assert_eq(&commands.join("\n"));
    }

    #[test]
    fn counters_are_read_from_what_tc_prints() {
        let text = "class htb 1:10 parent 1:100 leaf 10: prio 0 rate 1bit\n Sent 1 bytes 1 pkt (dropped 9, overlimits 1)\n\
                    class htb 1:1 parent 1:100 leaf 10: prio 0 rate 1bit\n Sent 666669 bytes 149 pkt (dropped 2, overlimits 125 requeues 0)\n";
        let want = ClassCount {
            bytes: 666_669,
            packets: 149,
            dropped: 2,
        };
        assert_eq!(parse_count(text, 1), want);
        assert_eq!(parse_count(text, 7), ClassCount::default());
    }
}
