#include "runtime/comm/device_backend.h"

#include <unistd.h>

#include <string>
#include <string_view>

#include "base/error.h"
#include "support/catch.h"
#include "support/skip.h"

using namespace dslaunch;
using namespace dslaunch::runtime;

TEST_CASE("A plugin that is missing or something else is a set-up error that names it") {
    for (const char* path : {"/proc/nonexistent/libdsl_cuda.so", "libm.so.6"}) {
        try {
            (void)open_device_backend(path, 0);
            FAIL("opened " << path);
        } catch (const Error& error) {
            CHECK(error.code() == ExitCode::kSetup);
            CHECK(std::string(error.what()).find(path) != std::string::npos);
        }
    }
}

TEST_CASE("A build that leaves out what needs CUDA says so") {
    const std::string_view plugin = DSL_PLUGIN_LEFT_OUT, nccl = DSL_NCCL_LEFT_OUT;
    if (!plugin.empty())
        dslaunch::test::report_skipped("compiling the CUDA plugin", std::string(plugin));
    if (!nccl.empty())
        dslaunch::test::report_skipped("the communicator over a stand-in for NCCL",
                                       std::string(nccl));
    // The plugin uses the communicator.
    CHECK((!plugin.empty() || nccl.empty()));
}

TEST_CASE("The built plugin opens, and says so when there is no such GPU") {
    const std::string path = std::string(test::binary_dir()) + "/libdsl_cuda.so";
    if (::access(path.c_str(), R_OK) != 0) {
        dslaunch::test::report_skipped("opening the CUDA plugin", "there is no " + path);
        return;
    }
    try {
        const DeviceBackendPtr backend = open_device_backend(path, 4096);
        FAIL("GPU 4096 was opened");
    } catch (const Error& error) {
        CHECK(error.code() == ExitCode::kSetup);
        const std::string text = error.what();
        const bool opens = text.find("cannot be opened") == std::string::npos;
        if (!opens && DSL_TORCH_IS_OWN == 0) {
            dslaunch::test::report_skipped(
                "opening the CUDA plugin",
                "the CUDA libraries of a LibTorch that set-up did not bring are not complete: " +
                    text);
            return;
        }
        INFO(text);
        CHECK((text.find("GPU 4096") == 0 || text.find("CUDA device count") == 0));
    }
}
