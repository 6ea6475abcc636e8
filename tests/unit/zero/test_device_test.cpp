// Each check of the test device reports a fault when it should.
#include "support/device/test_device.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "support/catch.h"

namespace dslaunch::test {

TEST_CASE("operators of a test device give the CPU's bits, views and results in place included") {
    TestDevice device(0, 1);
    const at::Tensor here = at::arange(24, at::kFloat).view({4, 6});
    at::Tensor there = here.to(device.device());
    const auto compute = [](at::Tensor x) {
        x = x.transpose(0, 1).mul(0.3).sin();
        x.select(0, 2).add_(1);
        return x.softmax(1).matmul(x.t()).abs();
    };
    CHECK(at::equal(compute(there).cpu(), compute(here)));
    CHECK(there.sum().item<double>() == here.sum().item<double>());
}

TEST_CASE("the host cannot touch a test device's memory") {
    TestDevice device(0, 2);
    const at::Tensor there = at::ones({16}, device.device());
    const auto* const data = static_cast<const char*>(there.const_data_ptr());
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        ::signal(SIGSEGV, SIG_DFL);
        ::_exit(*static_cast<const volatile char*>(data));
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGSEGV);
}

TEST_CASE("an operator over two test devices, or over one and the CPU, throws") {
    TestDevice first(0, 3);
    TestDevice second(1, 4);
    const at::Tensor here = at::ones({3});
    const at::Tensor there = here.to(first.device());
    for (const at::Tensor& other : {here, here.to(second.device())})
        CHECK_THROWS_WITH(there.dot(other), Catch::Contains("on one test device"));
}

TEST_CASE("work on another stream that does not wait for an operator finds old memory") {
    TestDevice device(0, 5, std::chrono::milliseconds(20));
    ThreadStream other(6, std::chrono::microseconds(1));
    at::Tensor there = at::ones({1}, device.device());
    device.compute().finish();
    float seen[2] = {};
    const auto look = [&](int i) {
        other.put([&seen, i, data = kernel_address(there.mutable_data_ptr())] {
            seen[i] = *static_cast<const float*>(data);
        });
    };
    for (int i = 0; i < 50; ++i) there.add_(1);
    look(0);
    const auto event = device.compute().make_event();
    device.compute().record(*event);
    other.wait(*event);
    look(1);
    other.finish();
    CHECK(seen[0] < 51);
    CHECK(seen[1] == 51);
}

}  // namespace dslaunch::test
