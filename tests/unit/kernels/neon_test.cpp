// NEON's kernels on a machine with another processor: compiled by Debian's cross compiler, run
// under qemu, and compared with this machine's scalar kernels.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/text.h"
#include "support/catch.h"
#include "support/job_process.h"
#include "support/skip.h"
#include "support/text_tools.h"
#include "unit/kernels/kernel_digests.h"

using namespace dslaunch;
using namespace dslaunch::kernels;
using namespace dslaunch::test;

namespace {

// Prints the digests of each of ARM's instruction sets under its name.
constexpr const char* kProgram = R"(
#include "unit/kernels/kernel_digests.h"
using namespace dslaunch::kernels;
static void print(const char* name, const MatrixKernels& matrix, bool neon) {
    dslaunch::test::KernelDigests digests(
        {neon ? kNeonFlat : kScalarFlat, neon ? kNeonPacking : kScalarPacking,
         neon ? kNeonSigns : kScalarSigns, matrix, neon ? kNeonToken : kScalarToken});
    std::printf("[%s]\n%s", name, digests.lines().c_str());
}
int main() {
    print("scalar", kScalarMatrix, false);
    print("neon", kNeonMatrix, true);
    print("neon_dot", kNeonDotMatrix, true);
}
)";

// Returns the lines of TEXT between "[NAME]" and the next such line.
std::string part_of(const std::string& text, const std::string& name) {
    const size_t head = text.find("[" + name + "]\n");
    if (head == std::string::npos) return {};
    const size_t begin = head + name.size() + 3;
    return text.substr(begin, text.find('[', begin) - begin);
}

// Returns the lines of FOUND that are not as EXPECTED, in order; empty if all are.
std::string differences(const std::string& found, const std::string& expected) {
    const std::vector<std::string> lines = split(found, '\n'), good = split(expected, '\n');
    std::string text;
    for (size_t i = 0; i < std::max(lines.size(), good.size()); ++i)
        if (i >= lines.size() || i >= good.size() || lines[i] != good[i])
            text += (i < lines.size() ? lines[i] : "missing") + "\n";
    return text;
}

}  // namespace

TEST_CASE("the kernels of every instruction set have the same digests") {
    const std::string scalar =
        KernelDigests({kScalarFlat, kScalarPacking, kScalarSigns, kScalarMatrix, kScalarToken})
            .lines();
    CHECK(std::ranges::count(scalar, '\n') > 100);
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return;
    CHECK(KernelDigests({kAvx2Flat, kAvx2Packing, kAvx2Signs, kAvx2Matrix, kAvx2Token}).lines() ==
          scalar);
#endif
}

TEST_CASE("ARM's kernels give this processor's bits, under qemu", "[.long]") {
    const std::string compiler = "aarch64-linux-gnu-g++", emulator = "qemu-aarch64-static";
    for (const std::string& program : {compiler, emulator}) {
        if (has_program(program)) continue;
        return report_skipped("ARM's kernels", program + " is not installed");
    }
    const TemporaryFolder folder;
    const std::string source = std::string(source_dir()), all = folder.path() + "/all";
    const auto run = [&](const std::vector<std::string>& command) {
        JobProcess process(folder, command);
        const int code = process.wait();
        INFO(process.err());
        REQUIRE(code == 0);
        return process.out();
    };
    struct Unit {
        std::string file;
        std::vector<std::string> flags;  // those of lib/kernels/CMakeLists.txt
    };
    write_file(folder.path() + "/program.cpp", kProgram);
    const std::string loops = source + "/lib/kernels/matrix/cpu/";
    const Unit units[] = {
        {loops + "scalar.cpp", {"-O3", "-fno-tree-vectorize"}},
        {loops + "neon.cpp", {"-O3", "-DDSL_NEON"}},
        {loops + "neon_dot.cpp", {"-O3", "-DDSL_NEON", "-march=armv8.2-a+dotprod"}},
        {folder.path() + "/program.cpp", {"-O1"}}};
    std::vector<std::string> link = {compiler, "-static", "-o", all};
    for (const Unit& unit : units) {
        link.push_back(fmt::format("{}/{}.o", folder.path(), link.size()));
        std::vector<std::string> command = {compiler,
                                            "-std=c++20",
                                            "-Wall",
                                            "-Wextra",
                                            "-Wconversion",
                                            "-Wno-sign-conversion",
                                            "-Werror",
                                            "-fsigned-char",
                                            "-ffp-contract=off",
                                            "-fno-math-errno",
                                            "-fno-trapping-math",
                                            "-I" + source + "/lib",
                                            "-I" + source + "/tests",
                                            "-c",
                                            unit.file,
                                            "-o",
                                            link.back()};
        command.insert(command.end(), unit.flags.begin(), unit.flags.end());
        run(command);
    }
    run(link);
    const std::string digests = run({emulator, "-cpu", "max", all});
    const std::string expected =
        KernelDigests({kScalarFlat, kScalarPacking, kScalarSigns, kScalarMatrix, kScalarToken})
            .lines();
    for (const char* const name : {"scalar", "neon", "neon_dot"}) {
        INFO(name);
        CHECK(differences(part_of(digests, name), expected) == "");
    }
}
