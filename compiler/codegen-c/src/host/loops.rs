//! Code generation for loops, with hints for the C compiler, and for launches of tasks.

use std::fmt::Write as _;

use anyfn::{Result, bail};
use anyfn_ir::kind::is_int;
use anyfn_ir::stmt::{For, ForKind, Launch};
use anyfn_ir::visit::captured_var;

use crate::family::{Body, uses};
use crate::host::packed::FAILED;
use crate::host::{Host, c_type};

impl Body<'_, Host> {
    /// Generates a serial, unrolled or vectorized loop. A loop of another kind is an error: the pass
    /// `lower_parallel` replaces parallel loops by launches, and the host has no thread axes.
    pub(super) fn loop_of_any_kind(&mut self, node: &For) -> Result<()> {
        let name = &node.loop_var.name;
        if node.kind.is_bound() {
            let axis = node.kind.text();
            bail!("ValueError", "loop `{name}` is bound to {axis}, but C code for the host has no thread axes");
        }
        if node.kind == ForKind::Parallel {
            bail!(
                "ValueError",
                "cannot generate C code for parallel loop `{name}`; run the pass `lower_parallel` first"
            );
        }
        self.streamed(node, |body| body.loop_in_caches(node))
    }

    /// Generates a launch of tasks. The stores of the tasks bypass the caches if the parallel loop has the
    /// annotation `nontemporal`.
    pub(super) fn tasks(&mut self, node: &Launch) -> Result<()> {
        self.streamed(&node.body, |body| body.parallel(node))
    }

    /// Generates a loop by calling `inner`. The stores of the loop bypass the caches if the loop
    /// has the annotation `nontemporal`.
    fn streamed(&mut self, node: &For, inner: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let is_remark =
            node.annotations.get_any("nontemporal")?.is_some_and(|value| value.get::<bool>().unwrap_or(true));
        if !is_remark || self.dialect.streams || !self.dialect.options.has_vectors() {
            return inner(self);
        }
        self.declare("anyfn_stream", include_str!("stream.c").to_owned());
        self.dialect.streams = true;
        let result = inner(self);
        self.dialect.streams = false;
        if node.kind != ForKind::Parallel {
            // Until this call, other threads may not see the stored values.
            self.line("anyfn_end_streams();");
        }
        result
    }

    fn loop_in_caches(&mut self, node: &For) -> Result<()> {
        if self.dialect.options.has_vectors() {
            match node.kind {
                ForKind::Unrolled => self.line("#pragma GCC unroll 64"),
                ForKind::Vectorized => self.line("#pragma GCC ivdep"),
                _ => {}
            }
        }
        self.plain_loop(node)
    }

    /// Generates a launch of tasks. The body of the parallel loop becomes a separate function, which receives
    /// the captured variables and buffers.
    fn parallel(&mut self, launch: &Launch) -> Result<()> {
        let node = &launch.body;
        let (min, extent) = (self.place(&node.min)?, self.place(&node.extent)?);
        let tasks = match is_int(&launch.num_tasks, 0) {
            true => None,
            false => Some(self.place(&launch.num_tasks)?),
        };
        let (c_type, name) = (c_type(node.loop_var.dtype)?, self.names.var(&node.loop_var));
        let symbol = format!("{}_task{}", self.symbol, self.dialect.task_count);
        self.dialect.task_count += 1;
        let (begin, count) =
            (self.names.fresh(&format!("{name}_begin")), self.names.fresh(&format!("{name}_count")));
        let bounds =
            [(format!("{c_type} {begin}"), begin.clone()), (format!("{c_type} {count}"), count.clone())];
        self.flush_checks();
        // The body of the loop becomes the body of a separate function.
        let outer = (std::mem::take(&mut self.out), self.depth, std::mem::take(&mut self.dialect.allocated));
        self.depth = 2;
        self.scope.push((format!("{c_type} {name}"), name.clone()));
        self.extents.push(node.extent.clone());
        let is_in_task = std::mem::replace(&mut self.dialect.is_task, true);
        let result = self.stmt(&node.body);
        self.dialect.is_task = is_in_task;
        self.extents.pop();
        self.scope.pop();
        let body = std::mem::replace(&mut self.out, outer.0);
        (self.depth, self.dialect.allocated) = (outer.1, outer.2);
        result?;
        let stops = uses(&body, FAILED);
        let failed = stops.then(|| (format!("int32_t* {FAILED}"), FAILED.to_owned()));
        let captured: Vec<String> = launch
            .captures
            .iter()
            .filter_map(|capture| captured_var(&capture))
            .map(|var| self.names.var(&var))
            .collect();
        let in_scope = self.scope.iter().filter(|(_, name)| captured.contains(name)).cloned();
        let used: Vec<(String, String)> = in_scope.chain(bounds).chain(failed).collect();
        let mut task = format!("struct {symbol} {{\n");
        for (declared, _) in &used {
            let _ = writeln!(task, "  {};", declared.replace("restrict ", ""));
        }
        // Shared values are passed as parameters: for a pointer parameter, compilers assume that no other
        // pointer refers to the same memory, so they can keep the content in registers.
        let params: Vec<&str> = used.iter().map(|(declared, _)| &**declared).collect();
        let passed: Vec<String> = used.iter().map(|(_, name)| format!("shared->{name}")).collect();
        let _ = writeln!(
            task,
            "}};\n\nstatic ANYFN_APART int {symbol}_part(int task, anyfn_group* group, {}) {{\n  const {c_type} end = \
             ({c_type})((int64_t){count} * (task + 1) / group->num_task);\n  for ({c_type} at = \
             ({c_type})((int64_t){count} * task / group->num_task); at < end; ++at) {{\n    const {c_type} {name} = \
             {begin} + at;",
            params.join(", ")
        );
        let end = if self.dialect.streams { "  anyfn_end_streams();\n" } else { "" };
        let _ = writeln!(task, "{body}  }}\n{end}  return 0;\n}}\n");
        let part = format!("{symbol}_part(task, group, {})", passed.join(", "));
        let end = match stops {
            true => format!(
                "const int result = {part};\n  if (result) ANYFN_STOP(shared->{FAILED});\n  return result;"
            ),
            false => format!("return {part};"),
        };
        let _ = writeln!(
            task,
            "static int {symbol}(int task, anyfn_group* group, void* data) {{\n  const struct {symbol}* shared = (const struct \
             {symbol}*)data;\n  {end}\n}}\n"
        );
        self.dialect.tasks.push_str(&task);
        if stops {
            self.end_with_others();
        }
        self.line("{");
        self.depth += 1;
        // A loop inside a task ends together with the enclosing loops.
        if stops && !is_in_task {
            self.line("int32_t anyfn_has_failed = 0;");
        }
        let values: Vec<String> = used
            .iter()
            .map(|(_, used)| match used {
                used if *used == begin => min.clone(),
                used if *used == count => extent.clone(),
                used if used == FAILED && !is_in_task => "&anyfn_has_failed".to_owned(),
                used => used.clone(),
            })
            .collect();
        self.line(&format!("struct {symbol} shared = {{{}}};", values.join(", ")));
        let fail = self.fail("-1");
        let call = match tasks {
            None => format!("anyfn_parallel({symbol}, &shared)"),
            Some(tasks) => {
                self.declare("anyfn_parallel_in", include_str!("tasks.c").to_owned());
                format!("anyfn_parallel_in({tasks}, {symbol}, &shared)")
            }
        };
        self.line(&format!("if ({call} != 0) {fail}"));
        self.depth -= 1;
        self.line("}");
        Ok(())
    }
}
