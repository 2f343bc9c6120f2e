//! Tokens to a formula, by recursive descent: `and`, then comparisons, then `+ -`, then `* /`, then signs.

use super::lexer::{Located, Token, tokens};
use super::{
    Aggregate, Arithmetic, Cells, Comparison, DEPTH_MAX, Expression, Extreme, FIELDS, HostValue,
    Measurement, NETWORK_FIELDS, SeriesPart, SyntaxError, TEXT_MAX, unknown_field,
};
use crate::error::nearest;
use crate::hunt;
use crate::lab;
use crate::memory;
use crate::models;
use crate::nic;
use crate::planner;
use crate::world::{Bus, RequestBytes};
use isolane_rdma_scenario::model::{Host, Transport, Verb};

const FUNCTIONS: [&str; 20] = [
    "min",
    "max",
    "sum",
    "mean",
    "lowest",
    "highest",
    "jain",
    "counter",
    "ratio",
    "state",
    "series",
    "settled_us",
    "parameter",
    "network_bytes",
    "pcie_bytes",
    "violations",
    "judged",
    "harmonic",
    "palos",
    "aequitas",
];

/// Reads a formula.
///
/// ```
/// let formula = isolane_study_claims::expression::parse("busy:small.latency_us.p99 / idle:small.latency_us.p99")?;
/// assert_eq!(formula.labels(), ["busy", "idle"]);
/// # Ok::<(), isolane_study_claims::expression::SyntaxError>(())
/// ```
pub fn parse(text: &str) -> Result<Expression, SyntaxError> {
    if text.len() > TEXT_MAX {
        return Err(SyntaxError {
            position: TEXT_MAX,
            message: format!("the formula is longer than {TEXT_MAX} characters"),
        });
    }
    let mut parser = Parser {
        tokens: tokens(text)?,
        next: 0,
        end: text.len(),
        depth: 0,
    };
    let expression = parser.conjunction()?;
    if parser.next < parser.tokens.len() {
        return Err(parser.error("an operator was expected here".to_owned()));
    }
    Ok(expression)
}

struct Parser {
    tokens: Vec<Located>,
    next: usize,
    end: usize,
    depth: usize,
}

impl Parser {
    fn conjunction(&mut self) -> Result<Expression, SyntaxError> {
        let mut left = self.comparison()?;
        while self.peek() == Some(&Token::Word("and".to_owned())) {
            self.next += 1;
            let right = self.comparison()?;
            if !left.is_ordering() || !right.is_ordering() {
                return Err(self.error("`and` is allowed between comparisons only".to_owned()));
            }
            left = Expression::And(Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn comparison(&mut self) -> Result<Expression, SyntaxError> {
        let left = self.sum()?;
        let comparison = match self.peek() {
            Some(Token::Symbol("<")) => Comparison::Less,
            Some(Token::Symbol("<=")) => Comparison::AtMost,
            Some(Token::Symbol(">")) => Comparison::Greater,
            Some(Token::Symbol(">=")) => Comparison::AtLeast,
            _ => return Ok(left),
        };
        self.next += 1;
        let right = self.sum()?;
        self.numeric([&left, &right])?;
        Ok(Expression::Compare(
            comparison,
            Box::new(left),
            Box::new(right),
        ))
    }

    fn sum(&mut self) -> Result<Expression, SyntaxError> {
        let mut left = self.product()?;
        loop {
            let operator = match self.peek() {
                Some(Token::Symbol("+")) => Arithmetic::Add,
                Some(Token::Symbol("-")) => Arithmetic::Subtract,
                _ => return Ok(left),
            };
            self.next += 1;
            let right = self.product()?;
            left = self.arithmetic(operator, left, right)?;
        }
    }

    fn product(&mut self) -> Result<Expression, SyntaxError> {
        let mut left = self.signed()?;
        loop {
            let operator = match self.peek() {
                Some(Token::Symbol("*")) => Arithmetic::Multiply,
                Some(Token::Symbol("/")) => Arithmetic::Divide,
                _ => return Ok(left),
            };
            self.next += 1;
            let right = self.signed()?;
            left = self.arithmetic(operator, left, right)?;
        }
    }

    fn arithmetic(
        &self,
        operator: Arithmetic,
        left: Expression,
        right: Expression,
    ) -> Result<Expression, SyntaxError> {
        self.numeric([&left, &right])?;
        Ok(Expression::Arithmetic(
            operator,
            Box::new(left),
            Box::new(right),
        ))
    }

    fn signed(&mut self) -> Result<Expression, SyntaxError> {
        self.deeper(|parser| {
            if parser.accept("-") {
                let inner = parser.signed()?;
                parser.numeric([&inner])?;
                return Ok(Expression::Negate(Box::new(inner)));
            }
            parser.primary()
        })
    }

    fn primary(&mut self) -> Result<Expression, SyntaxError> {
        let start = self.next;
        match self.advance() {
            Some(Token::Number(value)) => Ok(Expression::Number(value)),
            Some(Token::Measurement(label, tenant, field)) => {
                if tenant.contains('*') {
                    self.next = start;
                    return Err(self.error(format!(
                        "{tenant:?} may name several tenants: wrap it in sum, mean, lowest, highest or jain"
                    )));
                }
                self.measurement(start, label, tenant, field)
                    .map(Expression::Measurement)
            }
            Some(Token::Symbol("(")) => {
                let inner = self.conjunction()?;
                self.expect(")")?;
                Ok(inner)
            }
            Some(Token::Word(name)) => {
                if !FUNCTIONS.contains(&name.as_str()) {
                    self.next = start;
                    return Err(self.error(format!(
                        "unknown name {name:?}{}",
                        nearest(&name, FUNCTIONS)
                    )));
                }
                self.expect("(")?;
                let call = self.call(&name)?;
                self.expect(")")?;
                Ok(call)
            }
            _ => {
                self.next = start;
                Err(self.error(
                    "a number, a measurement (label:tenant.field) or a function was expected here"
                        .to_owned(),
                ))
            }
        }
    }

    fn call(&mut self, name: &str) -> Result<Expression, SyntaxError> {
        match name {
            "min" => self.extreme(Extreme::Min),
            "max" => self.extreme(Extreme::Max),
            "sum" => self.aggregate(Aggregate::Sum),
            "mean" => self.aggregate(Aggregate::Mean),
            "lowest" => self.aggregate(Aggregate::Lowest),
            "highest" => self.aggregate(Aggregate::Highest),
            "jain" => self.aggregate(Aggregate::Jain),
            "counter" => self.host_value().map(Expression::Counter),
            "ratio" => self.host_value().map(Expression::HostRatio),
            "state" => {
                let label = self.name("a run's label")?;
                self.expect(",")?;
                let name = self.name("a figure's name")?;
                Ok(Expression::State { label, name })
            }
            "series" | "settled_us" => self.series(name),
            "parameter" => {
                let profile = self.name("a profile's name, in quotes")?;
                self.expect(",")?;
                let section = self.name("a section")?;
                self.expect(",")?;
                let name = self.name("a parameter")?;
                Ok(Expression::Parameter {
                    profile,
                    section,
                    name,
                })
            }
            "violations" => self.cells(Cells::Violations),
            "judged" => self.cells(Cells::Judged),
            "harmonic" | "palos" | "aequitas" => self.model(name),
            "network_bytes" => self.request_bytes(Bus::Network),
            _ => self.request_bytes(Bus::Pcie),
        }
    }

    fn extreme(&mut self, extreme: Extreme) -> Result<Expression, SyntaxError> {
        let mut members = vec![self.conjunction()?];
        while self.accept(",") {
            members.push(self.conjunction()?);
        }
        self.numeric(members.iter())?;
        Ok(Expression::Extreme(extreme, members))
    }

    fn aggregate(&mut self, aggregate: Aggregate) -> Result<Expression, SyntaxError> {
        let start = self.next;
        match self.advance() {
            Some(Token::Measurement(label, tenant, field)) => self
                .measurement(start, label, tenant, field)
                .map(|measurement| Expression::Aggregate(aggregate, measurement)),
            _ => {
                self.next = start;
                Err(self.error("one measurement (label:tenants*.field) was expected here".into()))
            }
        }
    }

    fn host_value(&mut self) -> Result<HostValue, SyntaxError> {
        let label = self.name("a run's label")?;
        self.expect(",")?;
        let start = self.next;
        let name = self.name("a host, a to an")?;
        let Some(host) = Host::named(&name) else {
            self.next = start;
            return Err(self.error(format!("host {name:?}: must be one of a to z or aa to an")));
        };
        self.expect(",")?;
        let name = self.name("a counter's name")?;
        Ok(HostValue { label, host, name })
    }

    fn series(&mut self, function: &str) -> Result<Expression, SyntaxError> {
        let label = self.name("a run's label")?;
        self.expect(",")?;
        let name = self.name("a series' name, in quotes")?;
        self.expect(",")?;
        let part = if function == "series" {
            self.choice(&SERIES_PARTS)?
        } else {
            match self.advance() {
                Some(Token::Number(within)) => SeriesPart::SettledUs { within },
                _ => {
                    self.next -= 1;
                    return Err(self.error("a part of the mean was expected here".to_owned()));
                }
            }
        };
        Ok(Expression::Series { label, name, part })
    }

    fn cells(&mut self, cells: Cells) -> Result<Expression, SyntaxError> {
        let label = self.name("an audit's label")?;
        Ok(Expression::Cells { label, cells })
    }

    fn model(&mut self, system: &str) -> Result<Expression, SyntaxError> {
        let start = self.next;
        let name = self.name("what of it")?;
        let Some(known) = models::find(system, &name) else {
            self.next = start;
            let hint = nearest(&name, models::names(system));
            return Err(self.error(format!("{system} has no {name:?}{hint}")));
        };
        let mut arguments = Vec::new();
        while self.accept(",") {
            let start = self.next;
            let key = self.name("an argument's name")?;
            if !known.arguments.contains(&key.as_str()) {
                self.next = start;
                let hint = nearest(&key, known.arguments.iter().copied());
                return Err(self.error(format!("{name} has no argument {key:?}{hint}")));
            }
            self.expect("=")?;
            let start = self.next;
            let Some(Token::Number(value)) = self.advance() else {
                self.next = start;
                return Err(self.error("a number was expected here".to_owned()));
            };
            arguments.push((key, value));
        }
        let missing = known
            .arguments
            .iter()
            .find(|wanted| arguments.iter().all(|(key, _)| key != *wanted));
        if let Some(missing) = missing {
            return Err(self.error(format!("{name} needs {missing}=")));
        }
        Ok(Expression::Model {
            system: system.to_owned(),
            name,
            arguments,
        })
    }

    fn request_bytes(&mut self, bus: Bus) -> Result<Expression, SyntaxError> {
        let mut request = RequestBytes {
            bus,
            profile: "cx5-100g-roce".to_owned(),
            verb: Verb::Write,
            transport: Transport::Rc,
            payload: 0,
            post_list: 1,
            mtu: 4096,
        };
        let mut has_payload = false;
        loop {
            let start = self.next;
            let key = self.name("payload=, profile=, verb=, transport=, mtu= or post_list=")?;
            self.expect("=")?;
            match key.as_str() {
                "payload" => {
                    request.payload = self.count()?;
                    has_payload = true;
                }
                "post_list" => request.post_list = self.count()?.max(1),
                "mtu" => request.mtu = self.count()?.max(1),
                "profile" => request.profile = self.name("a profile's name, in quotes")?,
                "verb" => request.verb = self.choice(&VERBS)?,
                "transport" => request.transport = self.choice(&TRANSPORTS)?,
                other => {
                    self.next = start;
                    let keys = [
                        "payload",
                        "profile",
                        "verb",
                        "transport",
                        "post_list",
                        "mtu",
                    ];
                    return Err(self.error(format!(
                        "unknown argument {other:?}{}",
                        nearest(other, keys)
                    )));
                }
            }
            if !self.accept(",") {
                break;
            }
        }
        if !has_payload {
            return Err(self.error("payload= is missing".to_owned()));
        }
        Ok(Expression::RequestBytes(request))
    }

    fn choice<T: Copy>(&mut self, choices: &[(&str, T)]) -> Result<T, SyntaxError> {
        let start = self.next;
        let name = self.name("a name")?;
        choices
            .iter()
            .find(|(choice, _)| *choice == name)
            .map(|(_, value)| *value)
            .ok_or_else(|| {
                self.next = start;
                let names = choices.iter().map(|(choice, _)| *choice);
                let all: Vec<_> = names.clone().collect();
                self.error(format!(
                    "{name:?} is none of {}{}",
                    all.join(", "),
                    nearest(&name, names)
                ))
            })
    }

    fn count(&mut self) -> Result<u64, SyntaxError> {
        let start = self.next;
        match self.advance() {
            Some(Token::Number(value))
                if value.fract() == 0.0 && (0.0..=2_147_483_648.0).contains(&value) =>
            {
                Ok(value as u64)
            }
            _ => {
                self.next = start;
                Err(self.error("a whole number up to 2^31 was expected here".to_owned()))
            }
        }
    }

    fn name(&mut self, wanted: &str) -> Result<String, SyntaxError> {
        let start = self.next;
        match self.advance() {
            Some(Token::Word(name) | Token::Quoted(name)) => Ok(name),
            _ => {
                self.next = start;
                Err(self.error(format!("{wanted} was expected here")))
            }
        }
    }

    fn measurement(
        &mut self,
        start: usize,
        label: String,
        tenant: String,
        field: String,
    ) -> Result<Measurement, SyntaxError> {
        let others: [&[&str]; 5] = [
            &nic::FIELDS,
            &planner::FIELDS,
            &memory::FIELDS,
            &hunt::FIELDS,
            &lab::FIELDS,
        ];
        let lists = [&FIELDS[..], &NETWORK_FIELDS].into_iter().chain(others);
        if !lists.into_iter().any(|list| list.contains(&field.as_str())) {
            self.next = start;
            return Err(self.error(unknown_field(&field)));
        }
        Ok(Measurement {
            label,
            tenant,
            field,
        })
    }

    fn numeric<'a>(
        &self,
        parts: impl IntoIterator<Item = &'a Expression>,
    ) -> Result<(), SyntaxError> {
        if parts.into_iter().any(Expression::is_ordering) {
            return Err(self.error("a comparison is no number to calculate with".to_owned()));
        }
        Ok(())
    }

    /// Runs `inner` one level deeper, and refuses levels beyond [`DEPTH_MAX`].
    fn deeper(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<Expression, SyntaxError>,
    ) -> Result<Expression, SyntaxError> {
        if self.depth == DEPTH_MAX {
            return Err(self.error(format!("more than {DEPTH_MAX} levels of nesting")));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(_, token)| token)
    }

    fn advance(&mut self) -> Option<Token> {
        let token = self.peek().cloned();
        self.next += usize::from(token.is_some());
        token
    }

    fn accept(&mut self, symbol: &'static str) -> bool {
        let found = self.peek() == Some(&Token::Symbol(symbol));
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, symbol: &'static str) -> Result<(), SyntaxError> {
        if self.accept(symbol) {
            return Ok(());
        }
        Err(self.error(format!("{symbol:?} was expected here")))
    }

    fn error(&self, message: String) -> SyntaxError {
        let position = self.tokens.get(self.next).map_or(self.end, |(at, _)| *at) + 1;
        SyntaxError { position, message }
    }
}

const SERIES_PARTS: [(&str, SeriesPart); 5] = [
    ("first", SeriesPart::First),
    ("last", SeriesPart::Last),
    ("mean", SeriesPart::Mean),
    ("min", SeriesPart::Min),
    ("max", SeriesPart::Max),
];

const VERBS: [(&str, Verb); 5] = [
    ("write", Verb::Write),
    ("read", Verb::Read),
    ("send", Verb::Send),
    ("fetch-add", Verb::FetchAdd),
    ("compare-swap", Verb::CompareSwap),
];

const TRANSPORTS: [(&str, Transport); 3] = [
    ("rc", Transport::Rc),
    ("uc", Transport::Uc),
    ("ud", Transport::Ud),
];
