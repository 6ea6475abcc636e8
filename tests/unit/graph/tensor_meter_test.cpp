// The bytes of one thread's tensors, by the sizes that were requested.

#include "graph/measure/tensor_meter.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>

#include <thread>

#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::graph;

TEST_CASE("a meter counts the tensors of its thread that live, and the most that did") {
    const at::Tensor before = at::zeros({1 << 20});
    TensorMeter meter;
    CHECK(meter.live().small_bytes == 0);
    at::Tensor kept = at::empty({1000});
    {
        const at::Tensor gone = at::empty({500}, at::kDouble);
        CHECK(meter.live().small_bytes == 8000);
        const at::Tensor view = gone.slice(0, 10);
        CHECK(meter.live().small_bytes == 8000);
    }
    CHECK(meter.live().small_bytes == 4000);
    CHECK(meter.peak().small_bytes == 8000);
    meter.restart_peak();
    CHECK(meter.peak().small_bytes == 4000);
    std::thread([] { const at::Tensor other = at::empty({1 << 20}); }).join();
    CHECK(meter.peak().small_bytes == 4000);
    kept.reset();
    CHECK(meter.live().small_bytes == 0);
    CHECK(meter.peak().small_bytes == 4000);
    CHECK(meter.peak().large_bytes == 0);
    { const at::Tensor large = at::empty({(8 << 20) / 4}); }
    CHECK(meter.peak().large_bytes == 8 << 20);
    CHECK(meter.live().large_bytes == 0);
    CHECK(meter.peak().small_bytes == 4000);
}
