//! Harmonic: equation 5.1, request costs, the split of the bus, and what the monitor costs.

use super::{Model, model, whole};
use isolane_common_quantities::units::{BitRate, Duration};
use isolane_rdma_policy::harmonic::daemon::{EXCESS_ONE, wait};
use isolane_rdma_policy::harmonic::statistics::TenantStatistics;
use isolane_rdma_policy::harmonic::{
    Allocation, BusFormat, Capacity, Dominant, HarmonicOptions, PerformanceProfile, RequestCosts,
    allocate,
};
use isolane_rdma_simulator::monitor::cost::{poll_cost, update_cost};
use isolane_rdma_simulator::monitor::{CYCLE_PS, MappingUpdate, SEARCH_CYCLES};

/// Two tenants with guarantees of both kinds on one NIC.
const TWO_TENANTS: &[&str] = &[
    "nic_gbps",
    "nic_mps",
    "pcie_gbps",
    "a_gbps",
    "a_mps",
    "b_gbps",
    "b_mps",
];

pub(super) const MODELS: &[Model] = &[
    // Equation 5.1 with the published T_basic and T_min, microseconds.
    model("interval_us", &["used", "allowed"], |given| {
        Ok(wait(&options(), excess(given[0], given[1])).as_us_f64())
    }),
    // Counters of one tenant.
    model("counters", &[], |_| Ok(TenantStatistics::COUNTERS as f64)),
    // Bytes of one counter.
    model("counter_bytes", &[], |_| {
        Ok(TenantStatistics::COUNTER_BYTES as f64)
    }),
    // A READ in WRITEs.
    model("read_cost", &[], |_| Ok(cost(|costs| costs.read))),
    // A SEND in WRITEs.
    model("send_cost", &[], |_| Ok(cost(|costs| costs.send))),
    // An atomic in WRITEs.
    model("atomic_cost", &[], |_| Ok(cost(|costs| costs.atomic))),
    // PCIe bandwidth of tenant a over that of tenant b.
    model("bus_ratio", TWO_TENANTS, |given| {
        let [a, b] = two(given)?;
        Ok(a.pcie_rate.as_gbps_f64() / b.pcie_rate.as_gbps_f64())
    }),
    // PCIe bandwidth of tenant a, Gb/s.
    model("bus_gbps", TWO_TENANTS, |given| {
        Ok(two(given)?[0].pcie_rate.as_gbps_f64())
    }),
    // 1 where bandwidth is the dominant resource of tenant a and requests that of tenant b, else 0.
    model("rate_is_dominant", TWO_TENANTS, |given| {
        let [a, b] = two(given)?;
        let holds = a.dominant == Dominant::Rate && b.dominant == Dominant::DataRequests;
        Ok(f64::from(u8::from(holds)))
    }),
    // Bytes of reading one tenant's counters, host to monitor.
    model("poll_bytes_to_monitor", &[], |_| {
        Ok(poll_cost().to_monitor as f64)
    }),
    // Bytes of reading one tenant's counters, monitor to host.
    model(
        "poll_bytes_to_host",
        &[],
        |_| Ok(poll_cost().to_host as f64),
    ),
    // Bandwidth of polls for one tenant, host to monitor, Gb/s.
    model("poll_gbps_to_monitor", &["poll_us"], |given| {
        Ok(poll_rates(given[0])?.0.as_gbps_f64())
    }),
    // Bandwidth of polls for one tenant, monitor to host, Gb/s.
    model("poll_gbps_to_host", &["poll_us"], |given| {
        Ok(poll_rates(given[0])?.1.as_gbps_f64())
    }),
    // Bytes of so many mapping updates, host to monitor.
    model("update_bytes", &["updates"], |given| {
        Ok(update_cost(whole("updates", given[0])?).to_monitor as f64)
    }),
    // Cycles of a search that finds its entry at once.
    model("search_cycles", &[], |_| Ok(SEARCH_CYCLES as f64)),
    // The same in microseconds.
    model("search_us", &[], |_| {
        Ok(Duration::from_ps(SEARCH_CYCLES * CYCLE_PS).as_us_f64())
    }),
    // Bytes of one mapping update.
    model("mapping_entry_bytes", &[], |_| {
        Ok(MappingUpdate::BYTES as f64)
    }),
];

fn poll_rates(poll_us: f64) -> Result<(BitRate, BitRate), String> {
    let poll = Duration::from_us(whole("poll_us", poll_us)?);
    Ok(poll_cost().every(poll))
}

/// The published settings. Equation 5.1 needs neither costs nor formats.
fn options() -> HarmonicOptions {
    let format = BusFormat {
        payload_max: 128,
        header: 20,
        work_request: 64,
        receive: 16,
    };
    HarmonicOptions::published(RequestCosts::CONNECTX_6_DX, format, 1)
}

fn excess(used: f64, allowed: f64) -> u64 {
    ((used - allowed).max(0.0) / allowed * EXCESS_ONE as f64) as u64
}

fn cost(of: fn(&RequestCosts) -> u32) -> f64 {
    f64::from(of(&RequestCosts::CONNECTX_6_DX)) / f64::from(RequestCosts::UNIT)
}

fn two(given: &[f64]) -> Result<[Allocation; 2], String> {
    let requests = |mps: f64| whole("requests per second", mps * 1e6);
    let nic = Capacity {
        rate: BitRate::from_gbps_f64(given[0]),
        data_requests_per_s: requests(given[1])?,
        pcie_rate: BitRate::from_gbps_f64(given[2]),
    };
    let tenant = |name: &str, gbps: f64, mps: f64| -> Result<PerformanceProfile, String> {
        Ok(PerformanceProfile {
            name: name.to_owned(),
            weight: 1,
            rate: Some(BitRate::from_gbps_f64(gbps)),
            data_requests_per_s: Some(requests(mps)?),
            ..PerformanceProfile::default()
        })
    };
    let tenants = [
        tenant("a", given[3], given[4])?,
        tenant("b", given[5], given[6])?,
    ];
    let split = allocate(&nic, &tenants).map_err(|error| error.to_string())?;
    <[Allocation; 2]>::try_from(split).map_err(|split| format!("{} allocations", split.len()))
}
