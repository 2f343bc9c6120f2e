//! A headless Chromium driven over its debugging pipe: enough for tests and screenshots, without a port or a crate.
//!
//! The browser reads commands from descriptor 3 and answers on descriptor 4, JSON texts that end with a zero byte
//! (Chrome DevTools Protocol, `--remote-debugging-pipe`). A shell joins the two to our pipes. The profile is a fresh
//! directory, also for what the browser calls temporary: all of it goes with the browser. Every feature that would call home
//! is off.
#![allow(dead_code)]

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Names a Chromium goes by.
const NAMES: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// Tries to remove the profile.
const REMOVALS: u32 = 10_000;

/// Longest wait for one answer: only a browser that hangs takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The Chromium on this machine's path, if any.
pub(crate) fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let candidates = NAMES
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    candidates.into_iter().find(|candidate| candidate.is_file())
}

/// One browser with one page.
pub(crate) struct Browser {
    child: Child,
    commands: ChildStdin,
    answers: Receiver<Value>,
    session: Option<String>,
    /// Name of the page's context: its own storage, which no other page shares.
    pub(crate) context: Value,
    last_id: u64,
    events: Vec<Value>,
    profile: tempfile::TempDir,
}

impl Browser {
    /// Starts it with an empty page.
    pub(crate) fn start(program: &Path) -> Result<Self> {
        let profile =
            tempfile::tempdir().context("cannot make a directory for the browser's profile")?;
        let mut child = Command::new("sh")
            .arg("-c")
            .arg("exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null")
            .arg(program)
            .args(include_str!("browser-flags.txt").split_whitespace())
            .arg(format!("--user-data-dir={}", profile.path().display()))
            // Sockets and crash reports are there too; a browser that is killed leaves them behind.
            .env("TMPDIR", profile.path())
            .env("XDG_CONFIG_HOME", profile.path())
            .env("XDG_CACHE_HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let commands = child
            .stdin
            .take()
            .context("the browser's input is a pipe")?;
        let output = child
            .stdout
            .take()
            .context("the browser's output is a pipe")?;
        let (send, answers) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(output).split(0) {
                let value = message
                    .ok()
                    .and_then(|bytes| serde_json::from_slice(&bytes).ok());
                if value.is_none_or(|value| send.send(value).is_err()) {
                    break;
                }
            }
        });
        let mut browser = Self {
            child,
            commands,
            answers,
            session: None,
            context: Value::Null,
            last_id: 0,
            events: Vec::new(),
            profile,
        };
        browser.renew()?;
        Ok(browser)
    }

    /// Replaces the page and all that it stored by an empty page. A start of the browser takes much longer.
    pub(crate) fn renew(&mut self) -> Result<()> {
        self.session = None;
        if !self.context.is_null() {
            let old = json!({"browserContextId": self.context});
            self.call("Target.disposeBrowserContext", old)?;
        }
        let made = self.call("Target.createBrowserContext", json!({}))?;
        self.context = made["browserContextId"].clone();
        let target = self.call(
            "Target.createTarget",
            json!({"url": "about:blank", "browserContextId": self.context}),
        )?;
        let attached = self.call(
            "Target.attachToTarget",
            json!({"targetId": target["targetId"], "flatten": true}),
        )?;
        self.session = attached["sessionId"].as_str().map(str::to_owned);
        self.forget();
        for domain in ["Page", "Runtime", "Network", "Log"] {
            self.call(&format!("{domain}.enable"), json!({}))?;
        }
        self.call("Page.setLifecycleEventsEnabled", json!({"enabled": true}))?;
        Ok(())
    }

    /// One command and its answer; events that arrive in between are kept.
    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Result<Value> {
        self.last_id += 1;
        let mut message = json!({"id": self.last_id, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.commands
            .write_all(format!("{message}\0").as_bytes())
            .context("the browser has gone")?;
        self.commands.flush()?;
        loop {
            let answer = self
                .next()
                .with_context(|| format!("no answer to {method}"))?;
            if answer["id"] == json!(self.last_id) {
                if !answer["error"].is_null() {
                    bail!("{method}: {}", answer["error"]);
                }
                return Ok(answer["result"].clone());
            }
            self.events.push(answer);
        }
    }

    fn next(&mut self) -> Result<Value> {
        self.answers
            .recv_timeout(PATIENCE)
            .map_err(|error| anyhow!("the browser says nothing: {error}"))
    }

    /// Opens an address and waits until this page, and not the one before it, is loaded.
    pub(crate) fn open(&mut self, address: &str) -> Result<()> {
        // From an empty page, so that an address that differs in its fragment alone is loaded again.
        for address in ["about:blank", address] {
            let answer = self.call("Page.navigate", json!({"url": address}))?;
            if let Some(error) = answer["errorText"].as_str() {
                bail!("{address}: {error}");
            }
            // An event of the page before may still be on its way.
            let loader = &answer["loaderId"];
            let loaded = |event: &Value| {
                event["method"] == "Page.lifecycleEvent"
                    && event["params"]["name"] == "load"
                    && event["params"]["loaderId"] == *loader
            };
            while !self.events.iter().any(loaded) {
                let event = self.next()?;
                self.events.push(event);
            }
        }
        Ok(())
    }

    /// A window of `width` by `height` CSS pixels with `scale` device pixels each, preferring dark or light.
    pub(crate) fn window(
        &mut self,
        (width, height): (u32, u32),
        scale: f64,
        dark: bool,
    ) -> Result<()> {
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600}),
        )?;
        let scheme = if dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", features)?;
        Ok(())
    }

    /// The value of an expression; promises are awaited.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Result<Value> {
        let parameters =
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", parameters)?;
        if !answer["exceptionDetails"].is_null() {
            bail!("{expression}: {}", answer["exceptionDetails"]);
        }
        Ok(answer["result"]["value"].clone())
    }

    /// The visible text of the first element that matches.
    pub(crate) fn text(&mut self, selector: &str) -> Result<String> {
        let value = self.evaluate(&format!(
            "document.querySelector({}).innerText",
            json!(selector)
        ))?;
        value
            .as_str()
            .map(str::to_owned)
            .with_context(|| format!("{selector} has no text"))
    }

    /// A click with the mouse in the middle of the element that an expression gives.
    pub(crate) fn click(&mut self, element: &str) -> Result<()> {
        let place = self.evaluate(&format!(
            "(() => {{ const e = {element}; e.scrollIntoView({{block: 'center', inline: 'center'}}); \
             const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()"
        ))?;
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event)?;
        }
        Ok(())
    }

    /// One key pressed and released: `Tab`, `Enter`, `ArrowDown`, ...
    pub(crate) fn key(&mut self, key: &str) -> Result<()> {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            "Escape" => (27, ""),
            " " => (32, " "),
            "End" => (35, ""),
            "Home" => (36, ""),
            "ArrowLeft" => (37, ""),
            "ArrowUp" => (38, ""),
            "ArrowRight" => (39, ""),
            "ArrowDown" => (40, ""),
            other => bail!("no code is known for the key {other}"),
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event =
                json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code});
            if kind == "keyDown" && !text.is_empty() {
                event["text"] = json!(text);
            }
            self.call("Input.dispatchKeyEvent", event)?;
        }
        Ok(())
    }

    /// A PNG of the window, or of the whole page.
    pub(crate) fn screenshot(&mut self, whole_page: bool) -> Result<Vec<u8>> {
        let parameters = json!({"format": "png", "captureBeyondViewport": whole_page});
        let parameters = if whole_page {
            let size = self.call("Page.getLayoutMetrics", json!({}))?["cssContentSize"].clone();
            let clip = json!({"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1});
            json!({"format": "png", "captureBeyondViewport": true, "clip": clip})
        } else {
            parameters
        };
        let answer = self.call("Page.captureScreenshot", parameters)?;
        base64(answer["data"].as_str().context("a screenshot is text")?)
    }

    /// Console messages, uncaught errors and requests beyond the file so far.
    pub(crate) fn problems(&mut self) -> Result<Vec<String>> {
        // An answered command means that what came before it has been sent.
        self.evaluate("0")?;
        let problem = |event: &Value| {
            let parameters = &event["params"];
            match event["method"].as_str()? {
                "Runtime.consoleAPICalled" => Some(format!("console: {parameters}")),
                "Runtime.exceptionThrown" => Some(format!("error: {parameters}")),
                "Log.entryAdded" => Some(format!("log: {}", parameters["entry"]["text"])),
                "Network.requestWillBeSent" => {
                    let address = parameters["request"]["url"].as_str()?;
                    let local = ["file:", "data:", "blob:", "about:"]
                        .iter()
                        .any(|kind| address.starts_with(kind));
                    (!local).then(|| format!("request: {address}"))
                }
                _ => None,
            }
        };
        Ok(self.events.iter().filter_map(problem).collect())
    }

    /// Forgets what pages have done so far.
    pub(crate) fn forget(&mut self) {
        self.events.clear();
    }

    /// Files requested so far, without the fragment.
    pub(crate) fn files(&self) -> Vec<String> {
        let requests = self
            .events
            .iter()
            .filter(|event| event["method"] == "Network.requestWillBeSent");
        requests
            .filter_map(|event| event["params"]["request"]["url"].as_str())
            .filter(|address| address.starts_with("file:"))
            .map(str::to_owned)
            .collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.session = None;
        // The browser may be gone already; then there is nothing to close.
        let _ = self.call("Browser.close", json!({}));
        // The pipe ends when the browser does. One that hangs is killed.
        while self.answers.recv_timeout(PATIENCE).is_ok() {}
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Its helpers may still write for a moment after it: then the folder is not empty yet.
        for _ in 0..REMOVALS {
            if std::fs::remove_dir_all(self.profile.path()).is_ok() {
                break;
            }
            std::thread::yield_now();
        }
    }
}

/// The address of a file.
pub(crate) fn address(file: &Path) -> Result<String> {
    let file = file
        .canonicalize()
        .with_context(|| format!("cannot find {}", file.display()))?;
    let mut out = "file://".to_owned();
    for byte in file.display().to_string().bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte) {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    Ok(out)
}

/// Standard base64 with padding.
fn base64(text: &str) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut buffer, mut bits) = (0u32, 0);
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            other => bail!("{other:#x} is no base64 digit"),
        };
        buffer = (buffer << 6) | u32::from(digit);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push((buffer >> bits) as u8);
        }
    }
    Ok(out)
}
