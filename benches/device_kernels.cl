// Kernels written by hand, with which benches/device_kernels.py compares those that the compiler generates.

#define TILE 64
#define DEPTH 16
#define EACH 4

// c = a b for float matrices, row by row: a is n x k, b is k x m; n and m are multiples of 64, and k is one of 16. A work group of
// 16 x 16 items computes a tile of 64 x 64 elements, and each item 4 x 4 of them in registers.
kernel void matmul(global const float *restrict a, global const float *restrict b, global float *restrict c, int n, int m, int k) {
    local float left[DEPTH][TILE], right[DEPTH][TILE];
    const int x = get_local_id(0), y = get_local_id(1), item = y * 16 + x;
    const int row = get_group_id(1) * TILE, column = get_group_id(0) * TILE;
    float sum[EACH][EACH] = {{0}};
    for (int begin = 0; begin < k; begin += DEPTH) {
        for (int i = item; i < TILE * DEPTH; i += 256) {
            left[i % DEPTH][i / DEPTH] = a[(row + i / DEPTH) * k + begin + i % DEPTH];
            right[i / TILE][i % TILE] = b[(begin + i / TILE) * m + column + i % TILE];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int at = 0; at < DEPTH; at++)
            for (int i = 0; i < EACH; i++)
                for (int j = 0; j < EACH; j++)
                    sum[i][j] += left[at][y * EACH + i] * right[at][x * EACH + j];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++)
            c[(row + y * EACH + i) * m + column + x * EACH + j] = sum[i][j];
}

// The softmax of each row of a float matrix with m columns. A work group of 64 items computes one row.
kernel void softmax(global const float *restrict a, global float *restrict out, int m) {
    local float parts[64];
    const int item = get_local_id(0);
    a += get_group_id(0) * m;
    out += get_group_id(0) * m;
    float top = -INFINITY;
    for (int j = item; j < m; j += 64)
        top = fmax(top, a[j]);
    parts[item] = top;
    for (int step = 32; step > 0; step /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < step)
            parts[item] = fmax(parts[item], parts[item + step]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    top = parts[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    float sum = 0;
    for (int j = item; j < m; j += 64)
        sum += out[j] = exp(a[j] - top);
    parts[item] = sum;
    for (int step = 32; step > 0; step /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < step)
            parts[item] += parts[item + step];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int j = item; j < m; j += 64)
        out[j] /= parts[0];
}

// c = a + b for n floats.
kernel void add(global const float *restrict a, global const float *restrict b, global float *restrict c, int n) {
    const int i = get_global_id(0);
    if (i < n)
        c[i] = a[i] + b[i];
}

// The transpose of a float matrix of n x m elements, both multiples of 16. A work group of 16 x 16 items moves one tile.
kernel void transpose(global const float *restrict a, global float *restrict out, int n, int m) {
    local float tile[16][17];
    const int x = get_local_id(0), y = get_local_id(1);
    tile[y][x] = a[(get_group_id(1) * 16 + y) * m + get_group_id(0) * 16 + x];
    barrier(CLK_LOCAL_MEM_FENCE);
    out[(get_group_id(0) * 16 + y) * n + get_group_id(1) * 16 + x] = tile[x][y];
}
