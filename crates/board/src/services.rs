//! Services of sessions with a board: tensors in its memory, a description of it, and measurements in cycles.

use alloc::boxed::Box;
use alloc::string::String as StdString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use anyfn::abi::kDLCPU;
use anyfn::{
    Any, AnyView, Args, DType, Device, Map, PackedFunc, Result, Shape, String, Tensor, bail, register,
};
use anyfn_protocol::code;
use anyfn_protocol::endpoint::{Endpoint, Service};
use anyfn_protocol::services::{Grants, Services, matches};
use anyfn_protocol::sink::Sink;

use crate::platform::{anyfn_board_cycles, anyfn_board_hz};

unsafe extern "C" {
    fn malloc(size: usize) -> *mut core::ffi::c_void;
    fn free(memory: *mut core::ffi::c_void);
}

/// Names of the functions that a client may look up.
struct Granted(Vec<StdString>);

impl Grants for Granted {
    fn allows_function(&self, name: &str) -> bool {
        matches(&self.0, name)
    }

    fn allows_device(&self, device: &str) -> bool {
        device == "cpu:0"
    }

    fn how_to_grant(&self, _denied: anyfn_protocol::services::Denied<'_>) -> StdString {
        "the program of the board has to name it in the list of grants".into()
    }
}

/// Services of one session.
pub(crate) struct BoardServices(Services<Granted>);

impl BoardServices {
    pub(crate) fn new(names: Vec<StdString>) -> BoardServices {
        BoardServices(Services::new(Granted(names)))
    }
}

impl Service for BoardServices {
    fn call(&self, endpoint: &Arc<Endpoint>, id: u64, code: u16, args: &[AnyView<'_>]) -> Result<Any> {
        match code {
            code::INFO => info(&self.0.grants().0),
            code::HAS | code::PUT | code::FILES | code::REMOVE | code::LOAD => {
                bail!("RuntimeError", "a board has no files: link the functions into its program")
            }
            other => self.0.call(endpoint, id, other, args),
        }
    }

    fn upload(&self, endpoint: &Endpoint, code: u16, args: &[Any]) -> Result<Option<(Box<dyn Sink>, u64)>> {
        self.0.upload(endpoint, code, args)
    }
}

/// Returns a map of values with their names.
fn map(pairs: impl IntoIterator<Item = (&'static str, Any)>) -> Result<Any> {
    Any::new(Map::<String, Any>::try_from_iter(
        pairs.into_iter().map(|(name, value)| (String::from(name), value)),
    )?)
}

fn info(functions: &[StdString]) -> Result<Any> {
    map([
        ("version", Any::new(env!("CARGO_PKG_VERSION"))?),
        ("os", Any::new("none")?),
        ("arch", Any::new(if cfg!(target_arch = "arm") { "arm" } else { "unknown" })?),
        ("triple", Any::new("arm-none-eabi")?),
        ("pointer_bits", Any::new(usize::BITS)?),
        ("features", Any::new(Vec::<StdString>::new())?),
        ("cores", Any::new(1)?),
        ("devices", Any::new(Vec::from([Device::CPU]))?),
        ("upload", Any::new(false)?),
        ("functions", Any::new(functions.to_vec())?),
        ("hz", Any::new(anyfn_board_hz())?),
    ])
}

/// Returns a tensor of zeros in the memory of the board.
#[register("anyfn.tensor_zeros")]
fn tensor_zeros(shape: Shape, dtype: DType, device: Device) -> Result<Tensor> {
    if device.0.device_type != kDLCPU || device.0.device_id != 0 {
        bail!("ValueError", "expected the device cpu:0, got {device}");
    }
    // Objects and messages, whose allocation must not fail, need memory, too.
    let reserve = {
        // SAFETY: `malloc` takes any size.
        let memory = unsafe { malloc(RESERVE + bytes(&shape, dtype)) };
        // SAFETY: the memory comes from `malloc`, or is NULL.
        unsafe { free(memory) };
        memory
    };
    if reserve.is_null() {
        bail!("MemoryError", "cannot allocate {} bytes for a tensor on a board", bytes(&shape, dtype));
    }
    Tensor::zeros(dtype, &shape)
}

/// Bytes that remain free after the allocation of a tensor.
const RESERVE: usize = 12 << 10;

fn bytes(shape: &Shape, dtype: DType) -> usize {
    let count = shape.iter().try_fold(1_usize, |all, extent| all.checked_mul(usize::try_from(*extent).ok()?));
    let bits = usize::from(dtype.0.bits) * usize::from(dtype.0.lanes);
    count
        .and_then(|count| count.checked_mul(bits))
        .map_or(usize::MAX / 4, |bits| bits.div_ceil(8))
        .min(usize::MAX / 4)
}

/// Creates a function that measures `function`: it takes the arguments of `function` and returns a map with the cycles of each
/// measurement and their mean for one call.
#[register("anyfn.time_evaluator")]
#[allow(clippy::too_many_arguments, reason = "the options that evaluators of this kind have")]
fn time_evaluator(
    function: PackedFunc,
    #[default(None)] _device: Option<Device>,
    #[default(10)] number: u64,
    #[default(1)] repeat: u64,
    #[default(0.0)] min_repeat_ms: f64,
    #[default(100)] _limit_zero_time_iterations: u64,
    #[default(0)] _cooldown_interval_ms: u64,
    #[default(1)] _repeats_to_cooldown: u64,
    #[default(0)] cache_flush_bytes: usize,
    #[default("")] flush: &str,
    #[default(None)] preprocess: Option<PackedFunc>,
) -> Result<PackedFunc> {
    if number == 0 || repeat == 0 {
        bail!(
            "ValueError",
            "time_evaluator: expected at least one call and one measurement, got {number} and {repeat}"
        );
    }
    if min_repeat_ms != 0.0 || cache_flush_bytes != 0 || !flush.is_empty() || preprocess.is_some() {
        bail!("ValueError", "time_evaluator: a board knows the options `number` and `repeat` only");
    }
    Ok(PackedFunc::new(move |args: Args<'_>| {
        let mut all = Vec::new();
        function.call_views(args.as_slice())?;
        for _ in 0..repeat {
            let start = anyfn_board_cycles();
            for _ in 0..number {
                function.call_views(args.as_slice())?;
            }
            all.push(anyfn_board_cycles().saturating_sub(start));
        }
        let cycles = all.iter().sum::<u64>() as f64 / (number * repeat) as f64;
        map([
            ("cycles", Any::new(cycles)?),
            ("mean", Any::new(cycles / f64::from(anyfn_board_hz()))?),
            ("measurements", Any::new(all.iter().map(|cycles| *cycles as i64).collect::<Vec<_>>())?),
            ("hz", Any::new(anyfn_board_hz())?),
        ])
    }))
}

unsafe extern "C" {
    safe fn anyfn_board_flash() -> usize;
    safe fn anyfn_board_ram() -> usize;
}

/// Returns the bytes of flash and of RAM that the program has used so far.
#[register("anyfn.board.memory")]
fn memory() -> (i64, i64) {
    (anyfn_board_flash() as i64, anyfn_board_ram() as i64)
}
