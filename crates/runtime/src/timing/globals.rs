//! Registered functions for measurements in other languages.

use anyfn::{
    Any, Args, Blocking, Bytes, Device, IntoArgs, Module, Names, PackedFunc, Ref, Result, TypedPackedFunc,
    bail, register, registry,
};

use super::cache::bytes_to_flush;
use super::{TimeEvaluator, Timing};

/// Creates a function that measures `function`. The created function takes the arguments of `function` and returns an
/// `anyfn.Timing`.
///
/// `flush` names the cache that is flushed before each call: "l1", "l2", "l3", or "all" for the last level; "" is none.
/// If `cache_flush_bytes` is greater than the number of bytes that flush this cache, it applies instead.
#[register("anyfn.time_evaluator")]
#[allow(clippy::too_many_arguments, reason = "the options that evaluators of this kind have")]
fn time_evaluator(
    function: PackedFunc,
    #[default(None)] device: Option<Device>,
    #[default(10)] number: u64,
    #[default(1)] repeat: u64,
    #[default(0.0)] min_repeat_ms: f64,
    #[default(100)] limit_zero_time_iterations: u64,
    #[default(0)] cooldown_interval_ms: u64,
    #[default(1)] repeats_to_cooldown: u64,
    #[default(0)] cache_flush_bytes: usize,
    #[default("")] flush: &str,
    #[default(None)] preprocess: Option<PackedFunc>,
) -> Result<PackedFunc> {
    // A function of another process is measured in that process.
    if let Some(remote) = registry::find("rpc.time_evaluator") {
        let args = (
            &function,
            device,
            number,
            repeat,
            min_repeat_ms,
            limit_zero_time_iterations,
            cooldown_interval_ms,
            repeats_to_cooldown,
            cache_flush_bytes,
            flush,
            preprocess.clone(),
        );
        let evaluator = args.with_views(|views| super::call_unseen(&remote, views))?;
        if let Some(evaluator) = evaluator.get::<Option<PackedFunc>>()? {
            return Ok(evaluator);
        }
    }
    let device = device.unwrap_or(Device::CPU);
    let evaluator = TimeEvaluator {
        device,
        number,
        repeat,
        min_repeat_ms,
        limit_zero_time_iterations,
        cooldown_interval_ms,
        repeats_to_cooldown,
        cache_flush_bytes: cache_flush_bytes.max(flush_bytes(device, flush)?),
        preprocess,
    };
    evaluator.check()?;
    // Checked now as well, so that an unavailable device is reported before the first measurement.
    super::timer(evaluator.device)?;
    let names = Names { function: "time_evaluator", ..Names::default() };
    let body = move |args: Args<'_>| evaluator.run_views(&function, args.as_slice()).map(Ref::new);
    Ok(TypedPackedFunc::named(names, Blocking(body)).into())
}

/// Returns the number of bytes that flush the cache named `flush`; 0 if `flush` is empty.
fn flush_bytes(device: Device, flush: &str) -> Result<usize> {
    let level = match flush {
        "" => return Ok(0),
        "l1" => 1,
        "l2" => 2,
        "l3" => 3,
        "all" => 0,
        other => bail!(
            "ValueError",
            "anyfn.time_evaluator: expected `flush` to be \"l1\", \"l2\", \"l3\", \"all\" or empty but got {other:?}"
        ),
    };
    Ok(bytes_to_flush(device, level))
}

/// Formats the result of a measurement as a few lines of text.
#[register("anyfn.timing_text")]
fn timing_text(timing: Ref<Timing>) -> String {
    timing.to_string()
}

/// Creates an evaluator with the arguments of TVM's function `runtime.RPCTimeEvaluator`. The function to measure is
/// looked up by name, in a module or among the global functions. The evaluator returns the mean seconds per call of
/// each measurement, as the bytes of float64 numbers.
///
/// The arguments have two forms: one with 12 arguments, and an older one with 8, which lacks the four after
/// `min_repeat_ms`.
fn rpc_time_evaluator(args: Args<'_>) -> Result<Any> {
    const NAME: &str = "runtime.RPCTimeEvaluator";
    if !matches!(args.len(), 8 | 12) {
        bail!("TypeError", "{NAME}: expected 12 arguments, or 8 in the older form, but got {}", args.len());
    }
    let name = args.get::<&str>(1)?;
    let function = match args.get::<Option<Module>>(0)? {
        Some(module) => module.get_function(name)?,
        None => registry::get(name)?,
    };
    let number = |index: usize| args.get::<u64>(index);
    let preprocess = args.get::<&str>(args.len() - 1)?;
    let mut evaluator = TimeEvaluator {
        device: Device::new(args.get::<i32>(2)?, args.get::<i32>(3)?),
        number: number(4)?,
        repeat: number(5)?,
        min_repeat_ms: args.get::<f64>(6)?,
        preprocess: if preprocess.is_empty() { None } else { Some(registry::get(preprocess)?) },
        ..TimeEvaluator::default()
    };
    if args.len() == 12 {
        evaluator.limit_zero_time_iterations = number(7)?;
        evaluator.cooldown_interval_ms = number(8)?;
        evaluator.repeats_to_cooldown = number(9)?.max(1);
        evaluator.cache_flush_bytes = args.get::<usize>(10)?;
    }
    evaluator.check()?;
    super::timer(evaluator.device)?;
    let body = move |args: Args<'_>| -> Result<Bytes> {
        let timing = evaluator.run_views(&function, args.as_slice())?;
        let mut bytes = Vec::with_capacity(8 * timing.results.len());
        for seconds in timing.results.iter() {
            bytes.extend_from_slice(&seconds.to_ne_bytes());
        }
        Ok(Bytes::from(&bytes[..]))
    };
    Any::new(TypedPackedFunc::named(Names { function: NAME, ..Names::default() }, Blocking(body)))
}

#[register("runtime.RPCTimeEvaluator")]
fn registered_rpc_time_evaluator(args: Args<'_>) -> Result<Any> {
    rpc_time_evaluator(args)
}
