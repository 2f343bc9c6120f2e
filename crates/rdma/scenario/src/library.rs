//! What scenarios refer to by name: device profiles and the workload catalogue.

use crate::catalogue::Catalogue;
use crate::profile::Profile;
use std::sync::LazyLock;

/// Profiles and catalogue together.
#[derive(Clone, Debug, Default)]
pub struct Library {
    /// Device profiles, in order of their names.
    profiles: Vec<Profile>,
    /// Named workloads.
    pub catalogue: Catalogue,
}

impl Library {
    /// What is compiled into this crate, read once.
    pub fn embedded() -> Self {
        static EMBEDDED: LazyLock<Library> = LazyLock::new(|| {
            let profiles = crate::profile_text::embedded();
            Library::new(profiles, Catalogue::embedded())
        });
        EMBEDDED.clone()
    }

    /// A library of `profiles` and `catalogue`; of profiles with one name, the last counts.
    pub fn new(profiles: Vec<Profile>, catalogue: Catalogue) -> Self {
        let mut library = Self {
            profiles: Vec::new(),
            catalogue,
        };
        for profile in profiles {
            library.add_profile(profile);
        }
        library
    }

    /// Adds a profile, in place of the one of the same name.
    pub fn add_profile(&mut self, profile: Profile) {
        self.profiles.retain(|other| other.name != profile.name);
        let at = self
            .profiles
            .partition_point(|other| other.name < profile.name);
        self.profiles.insert(at, profile);
    }

    /// The profile called `name`.
    pub fn profile(&self, name: &str) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.name == name)
    }

    /// Every profile, in order of names.
    pub fn profiles(&self) -> &[Profile] {
        &self.profiles
    }

    /// Every profile's name, in order.
    pub fn profile_names(&self) -> impl Iterator<Item = &str> + Clone {
        self.profiles.iter().map(|profile| profile.name.as_str())
    }
}
