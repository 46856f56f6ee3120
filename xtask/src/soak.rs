//! Steps of `./x soak`: tests that take long.

use crate::process::cargo_cmd;
use crate::runner::Step;
use crate::steps::{BUILD, BUILD_JAVA, BUILD_JAVASCRIPT, BUILD_WHEEL, PEER_TVM, build, no_tvm, no_valgrind};
use crate::{c_tests, compat, java, javascript, paths, planted, portable, python};

/// Returns the steps of `./x soak`.
pub(crate) fn steps() -> Vec<Step> {
    let mut steps = build();
    steps.extend([
        Step::new("c soak tests", |run| c_tests::run_one(run, "memory", &[("ANYFN_SOAK", "1")]))
            .uses(BUILD)
            .skip_if(c_tests::unavailable),
        Step::new("c objects, a million deep", |run| c_tests::run_one(run, "objects", &[("ANYFN_SOAK", "1")]))
            .uses(BUILD)
            .skip_if(c_tests::unavailable),
        Step::new("deep graphs and many graphs", |run| {
            run.cmd(cargo_cmd("test -p anyfn-reflect --test depth --test hooks").env("ANYFN_SOAK", "1"))
        }),
        Step::new("loading and unloading on several threads", |run| {
            run.cmd(cargo_cmd("test -p anyfn-loader --test unload").env("ANYFN_STRESS_SECONDS", "20"))
        }),
        // These tests take a minute each. Clients behind a cut cable are found only by the keep-alive probes of the system.
        Step::new("clients that vanish", |run| {
            run.cmd(
                cargo_cmd("test -p anyfn-cli --test server boundaries -- --nocapture").env("ANYFN_SOAK", "1"),
            )
        }),
        Step::new("fifty clients of a server", |run| {
            run.cmd(cargo_cmd("test -p anyfn-cli --test server many -- --nocapture").env("ANYFN_SOAK", "1"))
        }),
        // These run for an hour, half an hour, a quarter of an hour (three times), and five minutes each. `ANYFN_FUZZ_SECONDS` sets
        // another time for all of them. The longest comes first, so that the others run beside it.
        Step::new("random programs, compiled and interpreted", |run| {
            let seconds = std::env::var("ANYFN_FUZZ_SECONDS").unwrap_or_else(|_| "3600".into());
            let fuzz = python::command()?.arg("bindings/python/tests/compiler_fuzz.py");
            run.cmd(fuzz.arg("--seconds").arg(seconds))
        })
        .uses(BUILD)
        .skip_if(python::unavailable)
        .beside(),
        Step::new("random schedules for an OpenCL device", |run| {
            let seconds = std::env::var("ANYFN_FUZZ_SECONDS").unwrap_or_else(|_| "900".into());
            let fuzz = python::command()?.arg("bindings/python/tests/device_fuzz.py");
            run.cmd(fuzz.arg("--seconds").arg(seconds))
        })
        .uses(BUILD)
        .skip_if(python::unavailable)
        .beside(),
        Step::new("random schedules for a simulated CUDA device", |run| {
            let seconds = std::env::var("ANYFN_FUZZ_SECONDS").unwrap_or_else(|_| "900".into());
            let fuzz = python::command()?.arg("bindings/python/tests/device_fuzz.py");
            run.cmd(fuzz.args(["--kind", "cuda", "--simulated"]).arg("--seconds").arg(seconds))
        })
        .uses(BUILD)
        .skip_if(python::unavailable)
        .beside(),
        Step::new("random schedules for a simulated Metal device", |run| {
            let seconds = std::env::var("ANYFN_FUZZ_SECONDS").unwrap_or_else(|_| "900".into());
            let fuzz = python::command()?.arg("bindings/python/tests/device_fuzz.py");
            run.cmd(fuzz.args(["--kind", "metal", "--simulated"]).arg("--seconds").arg(seconds))
        })
        .uses(BUILD)
        .skip_if(python::unavailable)
        .beside(),
        Step::new("random schedules for a Vulkan device", |run| {
            let seconds = std::env::var("ANYFN_FUZZ_SECONDS").unwrap_or_else(|_| "900".into());
            let fuzz =
                python::command()?.arg("bindings/python/tests/device_fuzz.py").args(["--kind", "vulkan"]);
            run.cmd(fuzz.arg("--seconds").arg(seconds))
        })
        .uses(BUILD)
        .skip_if(python::unavailable)
        .beside(),
        Step::new("fuzzing the reader of libraries", |run| {
            let seconds = std::env::var("ANYFN_FUZZ_SECONDS").unwrap_or_else(|_| "1800".into());
            run.cmd(cargo_cmd("test -p anyfn-loader --lib reads_anything").env("ANYFN_FUZZ_SECONDS", seconds))
        })
        .beside(),
        Step::new("fuzzing the reader of saved files", |run| {
            let seconds = std::env::var("ANYFN_FUZZ_SECONDS").unwrap_or_else(|_| "900".into());
            run.cmd(
                cargo_cmd("test -p anyfn-reflect --test saved reads_any").env("ANYFN_FUZZ_SECONDS", seconds),
            )
        })
        .beside(),
        Step::new("fuzzing the compiler with nonsense", |run| {
            let seconds = std::env::var("ANYFN_FUZZ_SECONDS").unwrap_or_else(|_| "900".into());
            let fuzz = python::command()?.arg("bindings/python/tests/compiler_nonsense.py");
            run.cmd(fuzz.arg("--seconds").arg(seconds))
        })
        .uses(BUILD)
        .skip_if(python::unavailable)
        .beside(),
        Step::new("fuzzing the reader of carried modules", |run| {
            let seconds = std::env::var("ANYFN_FUZZ_SECONDS").unwrap_or_else(|_| "300".into());
            run.cmd(
                cargo_cmd("test -p anyfn-loader --lib reads_any_import_tree")
                    .env("ANYFN_FUZZ_SECONDS", seconds),
            )
        })
        .beside(),
        Step::new("fuzzing what puts modules into libraries", |run| {
            let seconds = std::env::var("ANYFN_FUZZ_SECONDS").unwrap_or_else(|_| "300".into());
            run.cmd(
                cargo_cmd("test -p anyfn-bundle --lib takes_any_library").env("ANYFN_FUZZ_SECONDS", seconds),
            )
        })
        .beside(),
        Step::new("fuzzing remote sessions", |run| {
            let seconds = std::env::var("ANYFN_FUZZ_SECONDS").unwrap_or_else(|_| "300".into());
            run.cmd(
                cargo_cmd("test -p anyfn-rpc --test attack whatever_comes").env("ANYFN_FUZZ_SECONDS", seconds),
            )
        })
        .beside(),
        Step::new("fuzzing the server of remote sessions", |run| {
            let seconds = std::env::var("ANYFN_FUZZ_SECONDS").unwrap_or_else(|_| "300".into());
            run.cmd(cargo_cmd("test -p anyfn-cli --test server fuzz").env("ANYFN_FUZZ_SECONDS", seconds))
        })
        .beside(),
        Step::new("fuzzing the reader of programs", |run| {
            run.cmd(
                cargo_cmd("test -p anyfn-parser --test round_trip changed_texts").env("ANYFN_FUZZ", "300000"),
            )
        })
        .beside(),
        Step::new("damaged libraries", |run| {
            run.cmd(cargo_cmd("test -p anyfn-loader --test damage random").env("ANYFN_DAMAGE_ROUNDS", "20000"))
        })
        .beside(),
        Step::new("loading and unloading", |run| {
            run.cmd(cargo_cmd("test -p anyfn-loader --test lease leaves_nothing").env("ANYFN_CYCLES", "1000"))
        })
        .beside(),
        Step::new("containers against models", |run| {
            run.cmd(cargo_cmd("test -p anyfn --test containers_model").env("PROPTEST_CASES", "20000"))
        })
        .beside(),
    ]);
    steps.push(
        Step::new("ten minutes of apache-tvm on our library", |run| {
            let seconds = std::env::var("ANYFN_FUZZ_SECONDS").unwrap_or_else(|_| "600".into());
            let python = paths::tvm_python().ok_or("no apache-tvm")?;
            python::peer_script(
                run,
                python,
                "soak_tvm",
                &format!("testing/peer_tvm/soak.py --seconds {seconds}"),
            )
        })
        .uses(BUILD)
        .needs(PEER_TVM)
        .skip_if(no_tvm)
        .skip_if(compat::unavailable_here)
        .beside(),
    );
    steps.push(
        Step::new("apache-tvm on our library under valgrind", |run| {
            let python = paths::tvm_python().ok_or("no apache-tvm")?;
            let words = format!("{PEER_TVM}/soak.py --rounds 5");
            python::peer_script_under_valgrind(run, python, PEER_TVM, &words)
        })
        .uses(BUILD)
        .needs(PEER_TVM)
        .skip_if(no_tvm)
        .skip_if(compat::unavailable_here)
        .skip_if(no_valgrind),
    );
    // `./x test` does not run all tests with all versions of Python.
    steps.push(
        Step::new("python wheel", |run| python::pack(run, &paths::scratch_dir("wheel")).map(drop))
            .uses(BUILD)
            .skip_if(python::unavailable),
    );
    steps.extend(python::VERSIONS.map(|(version, name)| {
        Step::new(name, move |run| {
            let wheel = python::wheel_in(&paths::scratch_dir("wheel"), portable::HERE.name)?;
            python::test_wheel(run, version, &wheel, &paths::build_dir(), python::ALL_TESTS)
        })
        .uses(BUILD_WHEEL)
        .skip_if(move || python::version_unavailable(version))
    }));
    steps.push(
        Step::new("javascript soak tests", javascript::soak)
            .uses(BUILD_JAVASCRIPT)
            .needs_member("bindings/js")
            .skip_if(javascript::unavailable),
    );
    steps.push(
        Step::new("java soak tests", java::soak)
            .uses(BUILD_JAVA)
            .needs_member("bindings/java")
            .skip_if(java::unavailable),
    );
    // Takes half an hour. `ANYFN_FAULTS=core` plants only the faults in files with such paths.
    steps.push(Step::new("planted faults", planted::run).skip_if(python::unavailable));
    steps.push(
        Step::new("python soak tests", |run| python::script(run, "bindings/python/tests/soak.py"))
            .uses(BUILD)
            .needs("bindings/python/tests/soak.py")
            .skip_if(python::unavailable),
    );
    steps
}
