//! The reports in a real browser: what a reader clicks, types and sees.
//!
//! Skips with a printed reason where there is no Chromium, unless `ISOLANE_REQUIRE_BROWSER=1` is set. Reports are
//! made from made-up results. Screenshots go to `report-screenshots` in the tests' directory of the build.

#[path = "../support/devtools.rs"]
mod devtools;
#[path = "../support/story.rs"]
mod story;
#[path = "../support/synthetic.rs"]
mod synthetic;
#[path = "../support/synthetic_fabric.rs"]
mod synthetic_fabric;
#[path = "../support/synthetic_hunt.rs"]
mod synthetic_hunt;
#[path = "../support/synthetic_mem.rs"]
mod synthetic_mem;
#[path = "../support/synthetic_nic.rs"]
mod synthetic_nic;
#[path = "../support/synthetic_recommend.rs"]
mod synthetic_recommend;
#[path = "../support/synthetic_wfq.rs"]
mod synthetic_wfq;

mod audit;
mod pages;

use devtools::Browser;
use isolane_app_report::{WfqDelays, WfqPoint, number, svg};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use synthetic::Size;

const SIZE: Size = Size {
    victims: 25,
    attackers: 10,
    seeds: 3,
};

const DESK: (u32, u32) = (1280, 800);
const PHONE: (u32, u32) = (390, 844);

static SKIPPED: AtomicUsize = AtomicUsize::new(0);

/// Browsers between two reports. A start takes most of a short test's processor time, so tests pass them on.
struct Idle {
    /// Reports that are open. After the last one the browsers end, because nothing runs at the end of a test program.
    open: usize,
    browsers: Vec<Browser>,
}

static IDLE: Mutex<Idle> = Mutex::new(Idle {
    open: 0,
    browsers: Vec::new(),
});

fn idle() -> MutexGuard<'static, Idle> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A browser until the end of a test's report.
struct Lent(Option<Browser>);

impl Lent {
    fn of(program: &Path) -> Self {
        let waiting = {
            let mut idle = idle();
            idle.open += 1;
            idle.browsers.pop()
        };
        let mut lent = Self(waiting);
        match &mut lent.0 {
            Some(browser) => browser.renew().expect("the browser makes an empty page"),
            none => *none = Some(Browser::start(program).expect("Chromium starts")),
        }
        lent
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let ended = {
            let mut idle = idle();
            idle.open -= 1;
            // The state of a browser is unknown after a failure.
            if !std::thread::panicking() {
                idle.browsers.extend(self.0.take());
            }
            if idle.open == 0 {
                std::mem::take(&mut idle.browsers)
            } else {
                Vec::new()
            }
        };
        drop(ended);
    }
}

impl std::ops::Deref for Lent {
    type Target = Browser;

    fn deref(&self) -> &Browser {
        self.0.as_ref().expect("it is there until the end")
    }
}

impl std::ops::DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Browser {
        self.0.as_mut().expect("it is there until the end")
    }
}

/// A report in a browser; the directory goes with it.
struct Opened {
    browser: Lent,
    address: String,
    folder: tempfile::TempDir,
}

impl Opened {
    fn value(&mut self, expression: &str) -> Value {
        self.browser
            .evaluate(expression)
            .expect("the page evaluates")
    }

    fn text(&mut self, selector: &str) -> String {
        self.browser.text(selector).expect("the element has text")
    }

    fn keys(&mut self, keys: &[&str]) {
        for key in keys {
            self.browser.key(key).expect("the key is sent");
        }
    }

    fn screenshot(&mut self, name: &str, whole: bool) {
        let folder = screenshots();
        let image = self
            .browser
            .screenshot(whole)
            .expect("the browser takes a screenshot");
        assert!(image.starts_with(b"\x89PNG"), "a screenshot is a PNG");
        std::fs::write(folder.join(format!("{name}.png")), image)
            .expect("the build's directory is writable");
    }

    /// Another page in the same browser.
    fn show(&mut self, page: &str, window: (u32, u32), dark: bool) {
        self.browser.forget();
        std::fs::write(self.folder.path().join("report.html"), page)
            .expect("the temporary directory is writable");
        self.browser
            .window(window, 1.0, dark)
            .expect("the window can be sized");
        self.browser.open(&self.address).expect("the report opens");
    }

    /// Nothing went wrong, and the browser requested only the file itself.
    fn is_clean(&mut self) {
        assert_eq!(
            self.browser.problems().expect("the browser answers"),
            Vec::<String>::new()
        );
        for file in self.browser.files() {
            assert_eq!(file.split('#').next(), Some(self.address.as_str()));
        }
    }
}

fn screenshots() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report-screenshots");
    std::fs::create_dir_all(&folder).expect("the build's directory is writable");
    folder
}

/// Opens `page`, or says why this test is skipped.
fn open(page: &str, fragment: &str, window: (u32, u32), dark: bool) -> Option<Opened> {
    let Some(program) = devtools::find() else {
        let required = std::env::var("ISOLANE_REQUIRE_BROWSER").is_ok_and(|value| value == "1");
        assert!(
            !required,
            "ISOLANE_REQUIRE_BROWSER=1, but no Chromium is on the path"
        );
        let count = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
        eprintln!("skipped ({count} so far): no Chromium on the path");
        return None;
    };
    let folder = tempfile::tempdir().expect("the temporary directory is writable");
    let file = folder.path().join("report.html");
    std::fs::write(&file, page).expect("the temporary directory is writable");
    let address = devtools::address(&file).expect("the report is there");
    let mut browser = Lent::of(&program);
    browser
        .window(window, 1.0, dark)
        .expect("the window can be sized");
    browser
        .open(&format!("{address}{fragment}"))
        .expect("the report opens");
    Some(Opened {
        browser,
        address,
        folder,
    })
}

fn audit() -> &'static str {
    static PAGE: LazyLock<String> =
        LazyLock::new(|| isolane_app_report::audit(&synthetic::audit(SIZE)));
    &PAGE
}

/// The width of the layout, not that of the window: a phone shows a page that is too wide by zooming out.
const NO_SIDEWAYS_SCROLL: &str =
    "document.documentElement.scrollWidth <= document.documentElement.clientWidth";
