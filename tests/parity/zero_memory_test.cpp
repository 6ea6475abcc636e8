// The memory that ZeRO saves, measured on real ranks. The bytes that each rank reports are compared
// with the formula. The memory of all processes is measured as the system counts it, with shared
// pages counted once.
#include <cstdlib>
#include <string_view>

#include "base/bytes.h"
#include "base/error.h"
#include "fixture_runs.h"

namespace dslaunch::test {

using namespace launch;
namespace {

constexpr int kRanks = 4;
constexpr int64_t kContext = 32;
constexpr int64_t kBucketNumel = 1 << 20;
// The private data that a rank may have: enough at stage 3 but not at stage 0. For each of 9.6 M
// parameters, stage 0 has 8 bytes of moments, and stage 3 has a quarter of that.
constexpr Bytes kLimit{226 << 20};
// The largest share of the gradients that is in buffers at stages 2 and 3. One of three layers is
// in progress at a time, together with the largest parameters of its neighbour.
constexpr double kBuffersMax = 0.6;

// Makes a GPT whose states are large compared with the other memory of a process.
std::string make_large_gpt(const TemporaryFolder& folder) {
    return make_gpt(folder, 512, 3, kContext);
}

// The number of steps: enough for many looks if processes are looked at, else only enough to use
// all memory.
constexpr int kStepsLookedAt = 12;
constexpr int kSteps = 3;

Json gpt_config(int stage) {
    Json config;
    config["train_micro_batch_size_per_gpu"] = 1;
    config["optimizer"] = {{"type", "AdamW"}, {"params", {{"lr", 1e-3}}}};
    config["zero_optimization"] = {{"stage", stage},
                                   {"reduce_bucket_size", kBucketNumel},
                                   {"stage3_param_persistence_threshold", 0}};
    config["dslaunch"] = {
        {"steps", kSteps},
        {"data", {{"train", fixture_path("data/kjv.u16.bin")}, {"context", kContext}}}};
    return config;
}

struct MemoryRun {
    int code = -1;
    std::string err;
    int64_t parameters = 0;  // number of elements
    Json memory;             // rank 0's last line of metrics
    int64_t pss_bytes = 0;   // largest sum over all ranks that was seen
};

int64_t kib_in(const std::string& path, const std::string& key) {
    std::ifstream file(path);
    for (std::string word; file >> word;) {
        int64_t kib = 0;
        if (word == key && file >> kib) return kib;
    }
    return 0;
}

void look_at_workers(pid_t launcher, MemoryRun& run) {
    int64_t pss_kib = 0;
    for (const ProcessName& process : descendants(launcher)) {
        const std::string folder = "/proc/" + std::to_string(process.pid);
        std::ifstream file(folder + "/comm");
        std::string name;
        if (!std::getline(file, name) || name != "dsworker") continue;
        pss_kib += kib_in(folder + "/smaps_rollup", "Pss:");
    }
    run.pss_bytes = std::max(run.pss_bytes, pss_kib << 10);
}

// Returns the command line of PROGRAM under RLIMIT_DATA, the private data that each process may
// have: "unlimited" or a number of KiB.
std::vector<std::string> limited(const std::string& limit_kib, std::vector<std::string> program) {
    std::vector<std::string> all = {"/bin/sh", "-c",
                                    "ulimit -d \"$1\" && shift && OMP_NUM_THREADS=1 exec \"$@\"",
                                    "sh", limit_kib};
    all.insert(all.end(), program.begin(), program.end());
    return all;
}

// Returns Z of "memory of a rank: X estimated, Y measured at most, Z of it".
double measured_part(const std::string& log) {
    const std::string words = "measured at most, ";
    const size_t at = log.find(words);
    REQUIRE(at != std::string::npos);
    return std::stod(log.substr(at + words.size()));
}

// Trains MODEL. LOOK is called repeatedly while the job runs, with the process id of its launcher.
MemoryRun train_gpt(const std::string& model, const Json& config,
                    const std::string& limit_kib = "unlimited", int ranks = kRanks,
                    const std::function<void(pid_t, MemoryRun&)>& look = {}) {
    const TemporaryFolder folder;
    write_file(folder.path() + "/config.json", config.dump());
    JobProcess process(
        folder, limited(limit_kib, {kDslaunch, "--num_gpus", std::to_string(ranks), "--device",
                                    "cpu", model, "--config", folder.path() + "/config.json",
                                    "--output", folder.path() + "/out"}));
    MemoryRun run;
    const pid_t launcher = process.pid();
    const bool ended = wait_until([&] {
        if (look) look(launcher, run);
        return (run.code = process.wait(look ? 20 : kHangMs)) >= 0;
    });
    REQUIRE(ended);
    run.err = process.err();
    if (run.code != 0) return run;
    run.memory = metrics_in(folder.path() + "/out").back().at("memory");
    run.parameters = Json::parse(folder.read("out/run.json")).at("run").at("parameters");
    return run;
}

// Checks the bytes of each kind that a rank at STAGE has among kRanks, by Rajbhandari et al. 2019
// (ZeRO), section 3, for Adam. Shards are cut at blocks of 16 Ki elements in each bucket, and each
// of about thirty parameters is padded to 16 elements.
void check_formula(const std::string& model, int stage, bool half) {
    Json config = gpt_config(stage);
    if (half) config["bf16"] = {{"enabled", true}, {"check_grad_overflow", false}};
    const MemoryRun run = train_gpt(model, config);
    INFO(run.err);
    REQUIRE(run.code == 0);
    const auto psi = static_cast<double>(run.parameters);
    const double buckets_max = 2 * psi / kBucketNumel + 2;
    const auto check = [&](const char* kind, double bytes_of_element, bool shared_out) {
        INFO(kind << " at stage " << stage << ": " << run.memory.dump());
        const double share = shared_out ? psi / kRanks : psi;
        const double margin = shared_out ? buckets_max * 16384 + 64 * 16 : 64 * 16;
        CHECK(std::abs(run.memory.at(kind).get<double>() - bytes_of_element * share) <=
              bytes_of_element * margin);
    };
    check("moments", 8, stage >= 1);
    check("master", half ? 4 : 0, stage >= 1);
    check("parameters", half ? 2 : 4, stage >= 3);
    const double gradients = run.memory.at("gradients").get<double>();
    if (stage < 2) return check("gradients", 4, false);
    CHECK(gradients < kBuffersMax * 4 * psi);
}

}  // namespace

TEST_CASE("a rank holds the bytes that the ZeRO formula gives it") {
    const TemporaryFolder folder;
    const std::string model = make_large_gpt(folder);
    check_formula(model, 1, false);
    check_formula(model, 3, true);
}

TEST_CASE("a rank holds the bytes of the ZeRO formula at every stage and precision", "[.long]") {
    const TemporaryFolder folder;
    const std::string model = make_large_gpt(folder);
    for (const bool half : {false, true})
        for (const int stage : {0, 1, 2, 3}) check_formula(model, stage, half);
}

TEST_CASE("all processes of a job together hold less at stage 3 by what the stage saves") {
    const TemporaryFolder folder;
    const std::string model = make_large_gpt(folder);
    // If the machine has other work, the looks are rare and miss the peak. The largest value of a
    // few runs is therefore used.
    int64_t saved = 0;
    MemoryRun replicated, sharded;
    const auto run_again = [&](MemoryRun& most, int stage) {
        Json config = gpt_config(stage);
        config["dslaunch"]["steps"] = kStepsLookedAt;
        MemoryRun run = train_gpt(model, config, "unlimited", kRanks, look_at_workers);
        REQUIRE(run.code == 0);
        run.pss_bytes = std::max(run.pss_bytes, most.pss_bytes);
        most = run;
    };
    for (int turn = 0; turn < 3; ++turn) {
        run_again(replicated, 0);
        run_again(sharded, 3);
        // Stage 3 saves all but a share of the 8 bytes of moments for each parameter, on each rank.
        // Its buffers hold fewer than half of the gradients.
        saved = sharded.parameters * (8 * (kRanks - 1) + 4 * kRanks / 2);
        if (replicated.pss_bytes - sharded.pss_bytes > saved * 9 / 10) break;
    }
    std::printf(
        "%d ranks, %.1f M parameters: PSS of all %.0f MiB at stage 0, %.0f MiB at stage 3\n",
        kRanks, static_cast<double>(sharded.parameters) / 1e6,
        static_cast<double>(replicated.pss_bytes >> 10) / 1024,
        static_cast<double>(sharded.pss_bytes >> 10) / 1024);
    // A tenth is allowed for memory that is not at its peak at the time of a look.
    CHECK(replicated.pss_bytes - sharded.pss_bytes > saved * 9 / 10);
}

TEST_CASE("a job that a limit on memory forbids is refused with the config that fits it") {
    const TemporaryFolder folder;
    const std::string model = make_large_gpt(folder);
    const std::string limit_kib = std::to_string(kLimit.value >> 10);
    const MemoryRun replicated = train_gpt(model, gpt_config(0), limit_kib);
    INFO(replicated.err);
    CHECK(replicated.code == static_cast<int>(ExitCode::kSetup));
    CHECK(replicated.err.find("the job does not fit on this host: own memory of a rank: ") !=
          std::string::npos);
    CHECK(replicated.err.find("(RLIMIT_DATA); with these changes, the job needs only ") !=
          std::string::npos);
    CHECK(replicated.err.find(" of memory: zero_optimization.stage: 1") != std::string::npos);
    for (const int stage : {1, 3}) {
        const MemoryRun sharded = train_gpt(model, gpt_config(stage), limit_kib);
        INFO(sharded.err);
        CHECK(sharded.code == 0);
    }
}

TEST_CASE("a plan says whether this machine would admit the job") {
    const TemporaryFolder folder;
    const std::string model = make_large_gpt(folder);
    write_file(folder.path() + "/config.json", gpt_config(0).dump());
    const auto plan = [&](const std::string& limit_kib, bool json) {
        std::vector<std::string> command = {kDslaunch,
                                            "plan",
                                            model,
                                            "--world-size",
                                            std::to_string(kRanks),
                                            "--config",
                                            folder.path() + "/config.json"};
        if (json) command.push_back("--json");
        JobProcess process(folder, limited(limit_kib, std::move(command)));
        CHECK(process.wait() == 0);
        return process.out();
    };
    const std::string limit_kib = std::to_string(kLimit.value >> 10);
    const std::string refused = plan(limit_kib, false);
    INFO(refused);
    CHECK(refused.find("TOO LITTLE: RLIMIT_DATA") != std::string::npos);
    CHECK(refused.find("a run on hosts like this machine would be refused: with these changes, the "
                       "job needs only") != std::string::npos);
    const Json admitted = Json::parse(plan("unlimited", true)).at("admission");
    INFO(admitted.dump());
    CHECK(admitted.at("fits") == true);
    CHECK(admitted.at("ranks") == kRanks);
    CHECK(admitted.at("tiers").size() == 1);
    const Json limited_plan = Json::parse(plan(limit_kib, true)).at("admission");
    CHECK(limited_plan.at("fits") == false);
    CHECK(limited_plan.at("tiers").at(1).at("fits") == false);
    CHECK(limited_plan.at("private_bytes") == admitted.at("private_bytes"));
}

namespace {

// Returns true if LibTorch's products use AVX-512, which ONEDNN_MAX_CPU_ISA may forbid.
bool has_avx512() {
    const char* const bound = std::getenv("ONEDNN_MAX_CPU_ISA");
    if (bound != nullptr && !std::string_view(bound).starts_with("AVX512")) return false;
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512f") != 0;
#else
    return false;
#endif
}

}  // namespace

TEST_CASE("what a rank is said to need is what it takes, and hardly more") {
    // The tied table has 32 Ki rows: autograd makes its dense gradient of 32 MiB in one piece.
    const TemporaryFolder folder;
    const std::string model = folder.path() + "/gpt.pt";
    JobProcess made(
        folder, {kDslaunch, "model", "new", "gpt", "--vocab", "32768", "--width", "256", "--heads",
                 "4", "--layers", "2", "--context", std::to_string(kContext), "-o", model});
    REQUIRE(made.wait() == 0);
    const Json nvme = {{"device", "nvme"}, {"nvme_path", folder.path()}};
    for (const bool half : {false, true}) {
        for (const bool offload : {false, true}) {
            Json config = gpt_config(offload ? 3 : 0);
            // If the processor has no 16-bit products of its own, LibTorch's take a second for a
            // step of 32 tokens.
            if (half) config["bf16"] = {{"enabled", true}};
            if (half) config["dslaunch"]["data"]["context"] = kContext / 4;
            if (offload) {
                config["zero_optimization"]["offload_optimizer"] = nvme;
                config["zero_optimization"]["offload_param"] = nvme;
            }
            const MemoryRun run = train_gpt(model, config, "unlimited", 1);
            INFO((half ? "bf16" : "fp32") << (offload ? ", offloaded: " : ": ") << run.err);
            REQUIRE(run.code == 0);
            const double part = measured_part(run.err);
            // The goal is 5 %. The memory of programs and libraries differs between processors, and
            // the use of swap buffers depends on the speed of the disk: 1.00 to 1.07 on a processor
            // with AVX-512. Without AVX-512, LibTorch widens the operands of 16-bit products to
            // fp32, in memory that neither its allocator nor the estimate knows (50 MiB here).
            const bool widened = half && !has_avx512();
            CHECK(part >= 0.90);
            CHECK(part <= (offload ? 1.10 : 1.05) + (widened ? 0.15 : 0));
        }
    }
}

}  // namespace dslaunch::test
