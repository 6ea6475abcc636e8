// The libraries that cuDNN, nvrtc and LibTorch for CUDA open while they run, in folders laid out as
// by pip and by CUDA's packages, with other libraries' bytes under their names.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "launch/machine/elf_needs.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

namespace fs = std::filesystem;

// Returns the path of this program. The loader would take /proc/self/exe for itself.
std::string own_program() {
    return fs::canonical("/proc/self/exe").string();
}

// Returns the path of the smallest library that this test uses.
std::string small_library() {
    std::vector<SharedLibrary> libraries = list_libraries(own_program());
    std::erase_if(libraries, [](const SharedLibrary& one) { return one.path.empty(); });
    REQUIRE(!libraries.empty());
    return std::ranges::min(
               libraries, {},
               [](const SharedLibrary& one) { return fs::file_size(fs::canonical(one.path)); })
        .path;
}

// Makes FOLDER with NAMES, each a whole library, and returns the names in it that a program that
// loads OPENER from there is listed with.
std::set<std::string> listed_in(const std::string& folder, const std::string& opener,
                                const std::vector<std::string>& names) {
    fs::create_directories(folder);
    const std::string library = small_library();
    for (const std::string& name : names) fs::copy(library, folder + "/" + name);
    std::set<std::string> listed;
    for (const SharedLibrary& one :
         list_libraries(own_program(), {{"LD_PRELOAD", folder + "/" + opener}}))
        if (one.path.starts_with(folder + "/")) {
            CHECK(one.path == folder + "/" + one.name);
            CHECK(listed.insert(one.name).second);
        }
    return listed;
}

}  // namespace

TEST_CASE("libraries that others open at run time are listed with them") {
    const TemporaryFolder folder;
    const std::vector<std::string> cudnn = {"libcudnn.so.9", "libcudnn_graph.so.9",
                                            "libcudnn_engines_precompiled.so.9"};
    std::vector<std::string> beside = cudnn;
    // Parts of another version, further links, and what only a compiler reads.
    for (const char* name : {"libcudnn_graph.so.8", "libcudnn_graph.so.9.1.0", "libcudnn_graph.so",
                             "libcudnn_static.a", "libcublas.so.13"})
        beside.emplace_back(name);
    CHECK(listed_in(folder.path() + "/cudnn", "libcudnn.so.9", beside) ==
          std::set<std::string>(cudnn.begin(), cudnn.end()));
    CHECK(listed_in(folder.path() + "/nvrtc", "libnvrtc.so.13",
                    {"libnvrtc.so.13", "libnvrtc-builtins.so.13.0", "libnvrtc-builtins.so.13.0.88",
                     "libnvrtc-builtins.alt.so.13.0"}) ==
          std::set<std::string>{"libnvrtc.so.13", "libnvrtc-builtins.so.13.0"});
    CHECK(listed_in(folder.path() + "/torch", "libtorch_cuda.so",
                    {"libtorch_cuda.so", "libtorch_cuda_linalg.so", "libcaffe2_nvrtc.so",
                     "libtorch_python.so"}) == std::set<std::string>{"libtorch_cuda.so",
                                                                     "libtorch_cuda_linalg.so",
                                                                     "libcaffe2_nvrtc.so"});
    // A library that the loader refuses is left out: it could not be opened here either.
    const std::string damaged = folder.path() + "/damaged";
    fs::create_directories(damaged);
    fs::create_symlink("gone.so", damaged + "/libcudnn_ops.so.9");
    std::ofstream(damaged + "/libcudnn_cnn.so.9") << "no library";
    CHECK(listed_in(damaged, "libcudnn.so.9", cudnn) ==
          std::set<std::string>(cudnn.begin(), cudnn.end()));
    // Without its opener none is listed.
    CHECK(
        listed_in(folder.path() + "/none", "libother.so", {"libother.so", "libcudnn_graph.so.9"}) ==
        std::set<std::string>{"libother.so"});
}
