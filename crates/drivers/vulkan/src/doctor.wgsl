var<immediate> count: i32;
@group(0) @binding(0) var<storage, read> x: array<i32>;
@group(0) @binding(1) var<storage, read_write> y: array<i32>;

@compute @workgroup_size(64)
fn anyfn_doctor(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = i32(id.x);
    if (i < count) {
        y[i] = 3 * x[i] + 1;
    }
}
