// The best checkpoint of each kind of job, killed at awkward moments: saved over rank 0, in a
// pipeline, with tensor ranks, with adapters, with states and parameters on a disk, with buffers
// that forward changes. A run that nobody disturbed must give the same result.
#include <random>

#include "fault/best/best_job.h"
#include "support/every_nth.h"

namespace dslaunch::test {
namespace {

using ConfigChange = std::function<void(Json&)>;

struct BestKind {
    std::string name;
    std::string model = "gpt";
    ConfigChange change = {};
    bool over_hosts = false;  // two pretended hosts, which save over rank 0
    std::string result = "/model.safetensors";
};

std::vector<BestKind> best_kinds() {
    const auto offload = [](Json& config) {
        config["zero_optimization"] = {
            {"stage", 3},
            {"sub_group_size", 2000},
            {"offload_optimizer", {{"device", "nvme"}, {"nvme_path", "SWAP"}}},
            {"offload_param", {{"device", "nvme"}, {"nvme_path", "SWAP"}}}};
    };
    const auto pipeline = [](Json& config) {
        config["gradient_accumulation_steps"] = 4;
        config["dslaunch"]["pipeline"] = {{"stages", 2}};
    };
    const auto tensor = [](Json& config) { config["dslaunch"]["tensor"] = {{"size", 2}}; };
    const auto lora = [](Json& config) {
        config["dslaunch"]["lora"] = {{"r", 4}, {"alpha", 8}, {"targets", {"*"}}};
    };
    const auto stage3 = [](Json& config) { config["zero_optimization"] = {{"stage", 3}}; };
    return {
        {.name = "over rank 0", .change = stage3, .over_hosts = true},
        {.name = "stage 3, NVMe", .change = offload},
        {.name = "pipeline over rank 0", .change = pipeline, .over_hosts = true},
        {.name = "adapters over rank 0",
         .change = lora,
         .over_hosts = true,
         .result = "/adapter/adapter_model.safetensors"},
        {.name = "tensor ranks", .change = tensor},
        {.name = "buffers", .model = "convnet"},
        {.name = "pipeline", .change = pipeline},
        {.name = "tensor ranks over rank 0", .change = tensor, .over_hosts = true},
        {.name = "adapters at stage 3",
         .change =
             [=](Json& config) {
                 stage3(config);
                 lora(config);
             },
         .result = "/adapter/adapter_model.safetensors"},
        {.name = "tied, NVMe over rank 0",
         .model = "gpt-tied",
         .change = offload,
         .over_hosts = true},
    };
}

void make_kind(SavingJob& job, const BestKind& kind) {
    make_rise(job);
    job.model = kind.model;
    const ConfigChange rise = job.change;
    const std::string swap = job.folder.path() + "/swap";
    std::filesystem::create_directory(swap);
    job.change = [=](Json& config) {
        rise(config);
        if (kind.change) kind.change(config);
        std::string text = config.dump();
        for (size_t at = 0; (at = text.find("SWAP")) != text.npos;) text.replace(at, 4, swap);
        config = Json::parse(text);
    };
    if (!kind.over_hosts) return;
    job.ranks = 1;  // of each host
    write_file(job.folder.path() + "/hostfile", "left slots=1\nright slots=1\n");
    job.more = {"--hostfile", job.folder.path() + "/hostfile", "--launcher", "local", "--save-via",
                "rank0"};
}

bool can_resume(const SavingJob& job) {
    return newest_whole(job.output()) >= 0;
}

// Kills one process of JOB once IS_TIME returns true, after a short moment. Returns false if the
// job ended before.
bool run_until_killed(const SavingJob& job, std::mt19937& random,
                      const std::function<bool()>& is_time) {
    JobProcess process(job.folder, job.command(can_resume(job)));
    bool has_ended = false;
    static_cast<void>(wait_until([&] {
        has_ended = process.wait(1) >= 0;
        return has_ended || is_time();
    }));
    if (has_ended) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 40));
    kill_one(process, random() % 3);
    const bool was_killed = process.wait() != 0;
    CHECK(wait_until([] { return descendants(::getpid()).empty(); }, kGoneMaxMs));
    return was_killed;
}

std::string result_of(const SavingJob& job, const BestKind& kind) {
    return content_of(job.output() + kind.result);
}

void check_kind(const BestKind& kind, std::mt19937& random) {
    SavingJob unkilled;
    make_kind(unkilled, kind);
    const ProgramEnd outcome = run_rising(unkilled, false);
    INFO(kind.name << "\n" << outcome.err << outcome.out);
    REQUIRE(outcome.code == 0);
    const int64_t best = best_evaluation(unkilled);
    REQUIRE(best > 0);
    CHECK(kept_in(unkilled).best == best);
    CHECK(kept_in(unkilled).steps.front() > best);
    CHECK(outcome.says("of step " + std::to_string(best) + ", the best"));
    const std::string result = result_of(unkilled, kind);
    REQUIRE(!result.empty());
    if (kind.result == "/model.safetensors")
        CHECK(exported_weights(unkilled, unkilled.output() + "/best") == result);

    SavingJob job;
    make_kind(job, kind);
    size_t kills = 0;
    for (int attempt = 0; attempt < 2; ++attempt) {
        const int64_t until =
            (job.losses().empty() ? 0 : job.losses().rbegin()->first) + 3 + random() % 9;
        kills += run_until_killed(job, random, [&] {
            const auto losses = job.losses();
            return !losses.empty() && losses.rbegin()->first >= until;
        });
    }
    CHECK(kills > 0);
    // Once more while the last save ends and the weights are written.
    static_cast<void>(run_until_killed(job, random, [&] {
        const auto found = evaluations(job);
        return !found.empty() && Json::parse(found.rbegin()->second).contains("ended_early");
    }));
    const ProgramEnd ending = run_rising(job, can_resume(job));
    INFO(ending.err << ending.out);
    REQUIRE(ending.code == 0);
    CHECK(evaluations(job) == evaluations(unkilled));
    CHECK(kept_in(job).best == best);
    CHECK(kept_in(job).steps.front() == kept_in(unkilled).steps.front());
    CHECK(result_of(job, kind) == result);
    CHECK_FALSE(std::filesystem::exists(job.output() + "/checkpoints.host-1"));
}

}  // namespace

TEST_CASE("the best checkpoint of each kind of job survives kills at awkward moments", "[matrix]") {
    adopt_orphans();
    std::mt19937 random(53);
    EveryNth share(4);
    for (const BestKind& kind : best_kinds())
        if (share.takes_next()) check_kind(kind, random);
}

TEST_CASE("a run goes on with another number of ranks and keeps its best checkpoint") {
    // Both sizes train 4 rows in a step.
    SavingJob job;
    make_rise(job);
    const ConfigChange rise = job.change;
    job.change = [&](Json& config) {
        rise(config);
        config["train_batch_size"] = 4;
        config["zero_optimization"] = {{"stage", 3}};
        config["train_micro_batch_size_per_gpu"] = 1;
        config.erase("gradient_accumulation_steps");
    };
    job.more = {"--steps", "28"};  // an evaluation, near the best one
    job.ranks = 4;
    ProgramEnd outcome = run_rising(job, false);
    INFO(outcome.err << outcome.out);
    REQUIRE(outcome.code == 0);
    const int64_t best = best_evaluation(job);
    REQUIRE(kept_in(job).best == best);
    const std::string weights = exported_weights(job, job.output() + "/best");
    CHECK(job.weights() == weights);
    job.more.clear();
    job.ranks = 2;
    outcome = run_rising(job, true);
    INFO(outcome.err << outcome.out);
    REQUIRE(outcome.code == 0);
    const int64_t now = best_evaluation(job);
    CHECK(kept_in(job).best == now);
    if (now == best) CHECK(job.weights() == weights);
    CHECK(job.weights() == exported_weights(job, job.output() + "/best"));
    CHECK(outcome.says("ended early at step " + std::to_string(now + 3 * job.eval_interval)));
}

}  // namespace dslaunch::test
