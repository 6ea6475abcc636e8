// Runs tools/gpu-check without a GPU, with stand-in programs that print the output of the real
// ones. The script must run all its steps, judge their results, and write its page.
#include <sys/stat.h>

#include <fstream>

#include "support/catch.h"
#include "support/job_process.h"
#include "support/skip.h"

namespace dslaunch::test {
namespace {

// Steps of 500 ms at 200 TFLOPS, a fifth of the device's peak. On the device in fp32, the losses
// come from STUB_LOSS.
constexpr const char* kStandIn = R"(#!/bin/sh
if [ "$1" = model ]; then
    while [ $# -gt 0 ]; do [ "$1" = -o ] && echo archive >"$2"; shift; done
    exit 0
fi
device=cpu half=no
while [ $# -gt 0 ]; do
    case "$1" in
    --output) output=$2 ;;
    --steps) steps=$2 ;;
    --device) device=$2 ;;
    --bf16 | --fp16) half=yes ;;
    --node_rank) [ "$2" = 1 ] && exit 0 ;;
    esac
    shift
done
[ "$output" = "$STUB_FAILS" ] && { echo "error: rank 0 has ended" >&2; exit 69; }
loss=2.0
[ $device = cuda ] && loss=${STUB_LOSS:-2.00001}
[ $half = yes ] && loss=${STUB_HALF_LOSS:-2.01}
mkdir -p "$output"
for step in $(seq "$steps"); do
    printf '{"step":%s,"loss":%s,"step_ms":500,"tokens_per_s":16384,' $step $loss
    echo '"tflops":200,"mfu":0.2}'
done >"$output/metrics.jsonl"
[ $device = cuda ] && echo "memory of a GPU: 20.0 GiB estimated, 19.6 GiB measured at most," \
    "${STUB_OF_IT:-0.98} of it; LibTorch's allocator held 21.0 GiB"
exit 0
)";

constexpr const char* kKernels = R"(#!/bin/sh
echo "| work | bytes an element | GB/s | of a copy | bits of the CPU |"
echo "|---|---|---|---|---|"
for work in copy "AdamW, fp32" "AdamW with a bf16 copy" "SGD with momentum" Adagrad fill; do
    echo "| $work | 28 | 2000 | 0.97 | equal |"
done
echo "| Lion | 20 | 2000 | ${STUB_SHARE:-0.91} | equal |"
)";

constexpr const char* kTests = R"(#!/bin/sh
[ -n "$STUB_SKIPS" ] && echo "SKIPPED: training on a GPU because this machine has no GPU"
echo "All tests passed in $DSL_SOURCE_DIR and $DSL_BIN"
)";

constexpr const char* kNvidiaSmi = R"(#!/bin/sh
case "$*" in
-L) echo "GPU 0: a stub" ;;
*nounits*) echo 81920 ;;
*) echo "a stub, 81920 MiB, 1.0" ;;
esac
)";

// The row shows the arguments with which the program was called.
constexpr const char* kPython = R"(#!/bin/sh
case "$1" in
-c) exit 0 ;;
-) PATH=${PATH#*:} exec python3 "$@" ;;
esac
peer=$2
shift 5
echo "| PyTorch of a stub, $peer, $* | ${STUB_EAGER_MS:-510} ms | 16000 | 0.19 |"
)";

void write_program(const std::string& path, const char* text) {
    std::ofstream(path) << text;
    ::chmod(path.c_str(), 0755);
}

struct Answer {
    int code = 0;
    std::string page;  // the page with markers, after the run
    std::string out;
};

// Runs the script with stand-ins, and with VARIABLES, each NAME=VALUE, in its environment.
Answer run_check(const std::vector<std::string>& variables, const std::string& absent = "") {
    const TemporaryFolder folder;
    const std::string bin = folder.path() + "/bin", path = folder.path() + "/path";
    ::mkdir(bin.c_str(), 0755);
    ::mkdir(path.c_str(), 0755);
    for (const auto& [name, text] : {std::pair{"dslaunch", kStandIn},
                                     {"dsworker", kStandIn},
                                     {"libdsl_cuda.so", ""},
                                     {"bench_gpu_kernels", kKernels},
                                     {"test_comm", kTests},
                                     {"test_zero", kTests}})
        if (name != absent) write_program(bin + "/" + name, text);
    write_program(path + "/nvidia-smi", kNvidiaSmi);
    write_program(path + "/python3", kPython);
    const std::string page = folder.path() + "/page.md";
    std::ofstream(page) << "# A page\n<!-- gpu-check: begin -->\nNothing.\n"
                           "<!-- gpu-check: end -->\nThe end.\n";
    std::vector<std::string> command = {"env", "DSL_BIN=" + bin,
                                        "PATH=" + path + ":" + std::getenv("PATH")};
    command.insert(command.end(), variables.begin(), variables.end());
    for (const std::string& word :
         {std::string(source_dir()) + "/tools/gpu-check", folder.path() + "/work", page})
        command.push_back(word);
    JobProcess job(folder, command);
    const int code = job.wait();
    return {code, folder.read("page.md"), job.out() + job.err()};
}

bool has_python() {
    if (std::system("python3 -c '' 2>/dev/null") == 0) return true;
    report_skipped("tools/gpu-check with stubs", "there is no python3");
    return false;
}

}  // namespace

TEST_CASE("gpu-check trains, compares, judges, and puts its page between the markers") {
    if (!has_python()) return;
    const Answer answer = run_check({});
    INFO(answer.page << answer.out);
    CHECK(answer.code == 0);
    CHECK_THAT(answer.page, Catch::StartsWith("# A page\n<!-- gpu-check: begin -->\n"));
    CHECK_THAT(answer.page, Catch::EndsWith("<!-- gpu-check: end -->\nThe end.\n"));
    for (const char* line :
         {"a stub, 81920 MiB, 1.0,", "- the plugin opens: good",
          "- fixtures, stages and precisions: GPU beside CPU: good", "| Lion | 20 | 2000 | 0.91 |",
          "- PASS: the slowest optimizer's share of the bandwidth of a copy: 0.91, must be at "
          "least 0.85",
          "- 20 steps on the CPU: good", "- 20 steps at ZeRO-3: good",
          "- PASS: losses at ZeRO-0 beside the CPU's: 5.00e-06, must be at most 1e-4",
          "- PASS: losses in bf16 beside fp32 on the CPU: 5.00e-03, must be at most 2e-2",
          "- two ranks on one GPU as two hosts (for information): trains, losses differ from the "
          "CPU's by 5.00e-06",
          "| 500 ms | 16384 | 0.2 |",
          // 200 TFLOPS for 500 ms, and a peak that is five times as high.
          "| PyTorch of a stub, eager, 8 1024 1.000000e+14 1.000000e+03 | 510 ms | 16000 | 0.19 |",
          "- PASS: MFU as a share of PyTorch eager's: 1.020, must be at least 1",
          "- PASS: the estimate's distance from the allocator's peak: 0.02, must be at most 0.05"})
        CHECK_THAT(answer.page, Catch::Contains(line));
    CHECK_THAT(answer.page, !Catch::Contains("FAIL"));
}

TEST_CASE("each figure of gpu-check that is not as it must be ends it with 1") {
    if (!has_python()) return;
    struct Row {
        std::string variable;
        const char* said;
    };
    for (const Row& row : {
             Row{"STUB_LOSS=2.001",
                 "- FAIL: losses at ZeRO-3 beside the CPU's: 5.00e-04, must be at most 1e-4"},
             {"STUB_LOSS=null", "- FAIL: losses at ZeRO-0 beside the CPU's: none"},
             {"STUB_HALF_LOSS=1.9", "- FAIL: losses in fp16 beside fp32 on the CPU: 5.00e-02"},
             {"STUB_SHARE=0.84",
              "- FAIL: the slowest optimizer's share of the bandwidth of a copy"},
             {"STUB_OF_IT=1.06", "- FAIL: the estimate's distance from the allocator's peak: 0.06"},
             {"STUB_OF_IT=0.94", "- FAIL: the estimate's distance from the allocator's peak: 0.06"},
             {"STUB_EAGER_MS=495", "- FAIL: MFU as a share of PyTorch eager's: 0.990"},
             {"STUB_SKIPS=1", "- the plugin opens: FAILED with 0 (SKIPPED: training on a GPU"},
             {"STUB_FAILS=gpu2", "- 20 steps at ZeRO-2: FAILED with 69 (error: rank 0 has ended)"},
             {"STUB_FAILS=gpu2", "- FAIL: losses at ZeRO-2 beside the CPU's: none"},
         }) {
        const Answer answer = run_check({row.variable});
        INFO(row.variable << "\n" << answer.page << answer.out);
        CHECK(answer.code == 1);
        CHECK_THAT(answer.page, Catch::Contains(row.said));
    }
}

TEST_CASE("gpu-check does not pass over a test program that nobody has built") {
    if (!has_python()) return;
    for (const char* name : {"test_comm", "test_zero"}) {
        const Answer answer = run_check({}, name);
        INFO(answer.page);
        CHECK(answer.code == 1);
        CHECK_THAT(answer.page, Catch::Contains("FAILED with 127"));
    }
    // Without its programs, the script does not begin.
    CHECK(run_check({}, "bench_gpu_kernels").code == 71);
}

}  // namespace dslaunch::test
