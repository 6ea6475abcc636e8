// Tensors in files of a folder: their place, their removal, and a disk without room.
#include "job/verify/scratch_memory.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

namespace dslaunch::job {
namespace {

// Returns the file that is mapped at ADDRESS; empty if nothing is mapped there, or no file.
std::string file_at(const void* address) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        std::istringstream words(line);
        uintptr_t begin = 0, end = 0;
        char dash = 0;
        std::string access, offset, device, node, file;
        words >> std::hex >> begin >> dash >> end >> access >> offset >> device >> node >> file;
        const auto wanted = reinterpret_cast<uintptr_t>(address);
        if (wanted >= begin && wanted < end) return file;
    }
    return "";
}

}  // namespace

TEST_CASE("large tensors lie in files of the folder while the scope lives, small ones do not") {
    const test::TemporaryFolder folder;
    ScratchMemory memory(folder.path());
    at::Tensor large, small;
    {
        const ScratchMemory::Scope scope(memory);
        large = at::arange(1 << 20, at::kFloat);
        small = at::empty({16});
    }
    CHECK_THAT(file_at(large.data_ptr()), Catch::StartsWith(folder.path()));
    CHECK(file_at(small.data_ptr()).find(folder.path()) == std::string::npos);
    CHECK(large.sum().item<double>() == Approx(0.5 * (1 << 20) * ((1 << 20) - 1.0)));
    const at::Tensor later = at::empty({1 << 20});
    CHECK(file_at(later.data_ptr()).find(folder.path()) == std::string::npos);
    const void* const where = large.data_ptr();
    large = at::Tensor();
    CHECK(file_at(where).find(folder.path()) == std::string::npos);
}

TEST_CASE("a folder that cannot hold files, and a disk without room, are refused by name") {
    CHECK_THAT(test::error_of(ExitCode::kDisk, [] { ScratchMemory memory("/proc/none"); }),
               Catch::Contains("--scratch /proc/none: cannot create a file there"));
    const test::TemporaryFolder folder;
    ScratchMemory memory(folder.path());
    CHECK(memory.left() > Bytes{0});
    // A limit of file sizes takes the place of a full disk.
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    const auto signal = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit low{1 << 20, before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &low) == 0);
    const std::string why =
        test::error_of(ExitCode::kDisk, [&] { static_cast<void>(memory.allocate(4 << 20)); });
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
    std::signal(SIGXFSZ, signal);
    CHECK_THAT(why,
               Catch::Contains(folder.path() + ": cannot get 4.0 MiB for the copy of the model"));
}

}  // namespace dslaunch::job
