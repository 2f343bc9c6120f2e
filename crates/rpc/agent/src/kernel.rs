//! The BPF programs in the kernel, attached to a cgroup as long as this value lives.

use crate::error::{AgentError, chain};
use crate::rules::Rules;
use crate::wire::{CountWords, Counts, Destination, KernelSettings, Message, Probabilities};
use aya::maps::{Array, HashMap, MapData, PerCpuArray, RingBuf};
use aya::programs::{CgroupAttachMode, CgroupSkb, CgroupSkbAttachType, SockOps};
use aya::{Btf, Ebpf, EbpfLoader};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/agent.bpf.o");

/// The programs and their maps.
pub(crate) struct Programs {
    /// Holds the attachments; they end with it.
    object: Ebpf,
    settings: Array<MapData, [u8; 16]>,
    admit: HashMap<MapData, Destination, Probabilities>,
    messages: RingBuf<MapData>,
    counts: PerCpuArray<MapData, CountWords>,
}

impl std::fmt::Debug for Programs {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Programs").finish_non_exhaustive()
    }
}

impl Programs {
    /// Loads the programs, sets them and attaches them to `cgroup`.
    pub(crate) fn attach(
        cgroup: &Path,
        settings: KernelSettings,
        rules: &Rules,
    ) -> Result<Self, AgentError> {
        let open = |source| AgentError::Open {
            path: cgroup.into(),
            source,
        };
        let directory = File::open(cgroup).map_err(open)?;
        let mut programs = Self::load()?;
        programs.set(settings)?;
        programs.set_ports(rules)?;
        let attached = |error: aya::programs::ProgramError| AgentError::Attach {
            path: cgroup.into(),
            reason: chain(&error),
        };
        // The kernel refuses flags for a link, and lets other programs be beside one.
        let mode = CgroupAttachMode::Single;
        for (name, direction) in [
            ("check", CgroupSkbAttachType::Egress),
            ("acknowledge", CgroupSkbAttachType::Ingress),
        ] {
            let program = programs.program::<CgroupSkb>(name);
            program.load().map_err(|error| refused(&error))?;
            let linked = program.attach(&directory, direction, mode);
            linked.map_err(attached)?;
        }
        let observe = programs.program::<SockOps>("observe");
        observe.load().map_err(|error| refused(&error))?;
        observe.attach(&directory, mode).map_err(attached)?;
        Ok(programs)
    }

    fn load() -> Result<Self, AgentError> {
        let btf = Btf::from_sys_fs().map_err(|error| refused(&error))?;
        let mut object = EbpfLoader::new()
            .btf(Some(&btf))
            .load(OBJECT)
            .map_err(|error| refused(&error))?;
        let mut map = |name: &str| object.take_map(name).expect("the object has this map");
        let wrong = "the object's maps have these types";
        Ok(Self {
            settings: Array::try_from(map("settings")).expect(wrong),
            admit: HashMap::try_from(map("admit")).expect(wrong),
            messages: RingBuf::try_from(map("messages")).map_err(|error| refused(&error))?,
            counts: PerCpuArray::try_from(map("counts")).expect(wrong),
            object,
        })
    }

    fn program<'a, P>(&'a mut self, name: &str) -> &'a mut P
    where
        &'a mut P: TryFrom<&'a mut aya::programs::Program, Error: std::fmt::Debug>,
    {
        let program = self.object.program_mut(name);
        let program = program.expect("the object has this program");
        program.try_into().expect("of this kind")
    }

    /// Changes mode, classes and code points.
    pub(crate) fn set(&mut self, settings: KernelSettings) -> Result<(), AgentError> {
        let set = self.settings.set(0, settings.bytes(), 0);
        set.map_err(|error| failed("set the mode of the BPF programs", &error))
    }

    fn set_ports(&mut self, rules: &Rules) -> Result<(), AgentError> {
        let map = self.object.map_mut("classes_of_ports");
        let map = map.expect("the object has this map");
        let mut ports: HashMap<_, u16, u8> = HashMap::try_from(map).expect("of this type");
        for (port, class) in &rules.ports {
            let set = ports.insert(port, class, 0);
            set.map_err(|error| failed("set the classes of ports", &error))?;
        }
        Ok(())
    }

    /// Sets the admit probabilities of a destination.
    pub(crate) fn set_probabilities(
        &mut self,
        to: &Destination,
        probabilities: &Probabilities,
    ) -> Result<(), AgentError> {
        let set = self.admit.insert(to, probabilities, 0);
        set.map_err(|error| failed("set admit probabilities", &error))
    }

    /// The next message that has ended, if there is one.
    pub(crate) fn message(&mut self) -> Option<Message> {
        loop {
            let item = self.messages.next()?;
            if let Some(message) = Message::read(&item) {
                return Some(message);
            }
        }
    }

    /// Readable when a message has ended.
    pub(crate) fn ready(&self) -> BorrowedFd<'_> {
        self.messages.as_fd()
    }

    /// The counts of all processors.
    pub(crate) fn counts(&self) -> Result<Counts, AgentError> {
        let read = self.counts.get(&0, 0);
        let read = read.map_err(|error| failed("read the counts of the BPF programs", &error))?;
        let mut counts = Counts::default();
        for words in read.iter() {
            counts.add(words);
        }
        Ok(counts)
    }
}

fn refused(error: &dyn std::error::Error) -> AgentError {
    let reason = chain(error);
    AgentError::Refused { reason }
}

fn failed(action: &'static str, error: &dyn std::error::Error) -> AgentError {
    let reason = chain(error);
    AgentError::Kernel { action, reason }
}
