// GPUs are counted by their device nodes alone.
#include "launch/machine/gpu_use.h"

#include <fstream>

#include "support/catch.h"
#include "support/job_process.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

TEST_CASE("a GPU is a device node nvidia with a number") {
    const TemporaryFolder folder;
    CHECK(count_gpus(folder.path()) == 0);
    for (const char* name : {"nvidia0", "nvidia7", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia",
                             "nvidia1x", "null"})
        std::ofstream(folder.path() + "/" + name) << "";
    CHECK(count_gpus(folder.path()) == 3);
    CHECK(count_gpus(folder.path() + "/none") == 0);
}
