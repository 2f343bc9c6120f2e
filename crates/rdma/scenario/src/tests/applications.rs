//! Applications in the catalogue, and its page in the manual.

use super::*;

#[test]
fn the_catalogue_s_applications_run_as_tenants_behind_a_switch() {
    let library = library();
    let applications = library.catalogue.victims();
    let applications: Vec<_> = applications
        .filter(|entry| entry.category == Category::Application)
        .collect();
    let names: Vec<&str> = applications.iter().map(|e| e.name.as_str()).collect();
    let all = [
        "app_allreduce_ring",
        "app_allreduce_tree",
        "app_masstree",
        "app_redis",
        "app_dare",
        "app_crail",
    ];
    assert_eq!(names, all);
    for entry in applications {
        assert!(entry.duration.is_some(), "{}", entry.name);
        let text = |topology: &str, more: &str| {
            format!(
                "profile = \"test-nic\"\ntopology = \"{topology}\"\n[[tenant]]\nname = \"one\"\nworkload = \"{}\"\n{more}",
                entry.path()
            )
        };
        let scenario = parse(&text("switch", ""), "test.toml", &library);
        let scenario = scenario.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(scenario.tenants[0].class, entry.class);
        for workload in &scenario.tenants[0].workloads {
            if let Traffic::Application(application) = &workload.traffic {
                let error = parse(&text("switch", "from = \"b\"\n"), "test.toml", &library);
                let error = error.unwrap_err().to_string();
                assert!(error.contains("says itself where it runs"), "{error}");
                let hosts = application.hosts.len();
                let cabled = parse(&text("back-to-back", ""), "test.toml", &library);
                assert_eq!(cabled.is_ok(), hosts == 2, "{}", entry.name);
            }
        }
    }
}

#[test]
fn an_entry_in_full_has_no_command_line() {
    let text = "[[victim]]\nname = \"x\"\ncategory = \"Application\"\nresource = \"y\"\n";
    let refused = |more: &str| {
        let text = format!("{text}{more}");
        let error = Catalogue::parse(&text, "c.toml").unwrap_err();
        error.to_string()
    };
    let traffic = "[[victim.traffic]]\nverb = \"write\"\nsize = 64\n";
    assert!(refused("").contains("command is missing"));
    let both = format!("command = \"ib_write_bw -s 64\"\n{traffic}");
    assert!(refused(&both).contains("must be one of command"));
    assert!(refused(&format!("processes = 2\n{traffic}")).contains("drop it"));
    assert!(refused(&format!("{traffic}mtu = 1024\n")).contains("drop it"));
}

#[test]
fn datagrams_of_an_application_must_fit_the_device() {
    let text = "[[victim]]\nname = \"x\"\ncategory = \"Application\"\nresource = \"y\"\n\
        [[victim.application]]\nkind = \"key-value\"\nhosts = \"a,b\"\ntransport = \"ud\"\n\
        request = [\"64B\"]\nresponse = [\"3000B\"]\n";
    let catalogue = Catalogue::parse(text, "c.toml").unwrap();
    let limits = DeviceLimits {
        mtu_max: 2048,
        ..DeviceLimits::PERMISSIVE
    };
    let entry = &catalogue.entries[0];
    assert!(entry.workloads(&DeviceLimits::PERMISSIVE).is_ok());
    let error = entry.workloads(&limits).unwrap_err().to_string();
    assert!(error.contains("3000 bytes"), "{error}");
}

#[test]
fn threads_that_call_all_others_have_a_bounded_number_of_pairs() {
    let application = |servers: &str, hosts: &str| {
        let text = format!(
            "profile = \"test-nic\"\ntopology = \"switch\"\n[[tenant]]\nname = \"one\"\n[[tenant.application]]\n\
             kind = \"key-value\"\nhosts = \"{hosts}\"\nservers = \"{servers}\"\nthreads = 64\n\
             request = [\"64B\"]\nresponse = [\"64B\"]\n"
        );
        parse(&text, "test.toml", &library()).map_err(|error| error.to_string())
    };
    // 320 x 319 pairs of threads.
    application("others", "abcde").unwrap();
    application("all", "abcdef").unwrap();
    let error = application("others", "abcdef").unwrap_err();
    for part in ["threads = 64", "6 hosts", "147072 pairs", "at most 102400"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

/// Goal: the page about the catalogue names every key and no other. Method: its table's first column.
#[test]
fn the_page_about_the_catalogue_names_every_key() {
    let page = include_str!("../../../../../docs/reference/workloads.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let named: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    let keys: Vec<&str> = crate::spec::ENTRY.iter().map(|key| key.name).collect();
    for key in &keys {
        assert!(named.contains(key), "{key} is not in the page");
    }
    for name in &named {
        assert!(keys.contains(name), "{name} is no key");
    }
    for entry in Catalogue::embedded().entries {
        if entry.category == Category::Application {
            assert!(page.contains(&entry.name), "{}", entry.name);
        }
    }
}
