//! `[transport]` and `[policy]`: a name and numeric parameters.

use crate::keys::{POLICY, TRANSPORT};
use crate::model::{
    Congestion, FabricPolicy, FabricPolicyKind, PortSettings, Recovery, TransportSpec,
};
use crate::parameters;
use isolane_common_toml_input::error::{InputError, Problem, nearest};
use isolane_common_toml_input::keys::Key;
use isolane_common_toml_input::policy_parameter::PolicyParameter;
use isolane_common_toml_input::table::{Table, number};
use std::collections::BTreeMap;
use toml::de::{DeTable, DeValue};

/// Reads `[transport]`.
pub(super) fn transport(
    top: &Table<'_>,
    ports: &PortSettings,
) -> Result<TransportSpec, InputError> {
    let mut spec = TransportSpec {
        congestion: Congestion::Swift,
        recovery: Recovery::GoBackN,
        parameters: BTreeMap::new(),
    };
    let Some((start, map)) = below(top, "transport")? else {
        return Ok(spec);
    };
    let own = Table::unchecked(top.source(), map, start, TRANSPORT).placed("transport".to_owned());
    spec.congestion = own.choice("congestion")?.unwrap_or(spec.congestion);
    spec.recovery = own.choice("recovery")?.unwrap_or(spec.recovery);
    let marks = matches!(spec.congestion, Congestion::Dcqcn | Congestion::Dctcp);
    if marks && ports.ecn.is_none() {
        let expected =
            "slows down by marks, and no port marks: set ports.ecn = { min = ..., max = ... }";
        return Err(own.wrong("congestion", expected));
    }
    let known = parameters::congestion(spec.congestion);
    spec.parameters = parameters(&own, map, TRANSPORT, known)?;
    Ok(spec)
}

/// Reads `[policy]`.
pub(super) fn policy(top: &Table<'_>) -> Result<FabricPolicy, InputError> {
    let mut policy = FabricPolicy {
        kind: FabricPolicyKind::None,
        parameters: BTreeMap::new(),
    };
    let Some((start, map)) = below(top, "policy")? else {
        return Ok(policy);
    };
    let own = Table::unchecked(top.source(), map, start, POLICY).placed("policy".to_owned());
    policy.kind = own.choice("name")?.unwrap_or(policy.kind);
    policy.parameters = parameters(&own, map, POLICY, parameters::policy(policy.kind))?;
    Ok(policy)
}

fn below<'a>(top: &Table<'a>, key: &str) -> Result<Option<(usize, &'a DeTable<'a>)>, InputError> {
    let Some(value) = top.raw(key) else {
        return Ok(None);
    };
    match value.get_ref() {
        DeValue::Table(map) => Ok(Some((value.span().start, map))),
        _ => Err(top.wrong(key, format!("must be a table, [{key}]"))),
    }
}

/// Every key of `map` that `own` does not list, as a parameter of `known`.
fn parameters(
    table: &Table<'_>,
    map: &DeTable<'_>,
    own: &'static [Key],
    known: &'static [PolicyParameter],
) -> Result<BTreeMap<String, f64>, InputError> {
    let mut entries: Vec<_> = map
        .iter()
        .filter(|(key, _)| own.iter().all(|own| own.name != key.get_ref().as_ref()))
        .collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let mut parameters = BTreeMap::new();
    for (key, value) in entries {
        let written = key.get_ref().as_ref();
        let Some(parameter) = known.iter().find(|parameter| parameter.name == written) else {
            let names: Vec<&str> = own
                .iter()
                .map(|own| own.name)
                .chain(known.iter().map(|parameter| parameter.name))
                .collect();
            let problem = Problem::UnknownKey {
                key: written.to_owned(),
                nearest: nearest(written, names.iter().copied()).map(str::to_owned),
                known: names.into_iter().map(str::to_owned).collect(),
            };
            return Err(table.error(key.span().start, problem));
        };
        let value = number(value.get_ref())
            .filter(|number| (parameter.min..=parameter.max).contains(number))
            .ok_or_else(|| {
                let expected = format!("must be a number, {} to {}", parameter.min, parameter.max);
                table.wrong(parameter.name, expected)
            })?;
        parameters.insert(parameter.name.to_owned(), value);
    }
    Ok(parameters)
}
