//! What the sources of profile parameters promise.

use isolane_rdma_scenario::library::Library;
use isolane_rdma_scenario::profile::PARAMETERS;

#[test]
fn a_value_taken_over_from_connectx_5_is_its_value() {
    let library = Library::embedded();
    let original = library.profile("cx5-100g-roce").expect("shipped");
    let mut taken_over = 0;
    for profile in library.profiles() {
        for parameter in PARAMETERS {
            let sourced = &profile.section(parameter.section).expect("known")[parameter.name];
            if sourced.source.starts_with("as ConnectX-5") {
                let (section, name) = (parameter.section, parameter.name);
                assert_eq!(
                    sourced.value,
                    original.value(section, name),
                    "{}: {section}.{name} says {:?}",
                    profile.name,
                    sourced.source
                );
                taken_over += 1;
            }
        }
    }
    assert!(taken_over > 10, "{taken_over}");
}
