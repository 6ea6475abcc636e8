// Training jobs whose best checkpoint is neither their first nor their last, and what they leave.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "support/saving_job.h"

namespace dslaunch::test {

// Returns the evaluations that metrics.jsonl of JOB tells, each by the last line of its step.
inline std::map<int64_t, std::string> evaluations(const SavingJob& job) {
    std::map<int64_t, std::string> found;
    std::ifstream metrics(job.output() + "/metrics.jsonl");
    for (std::string line; std::getline(metrics, line);) {
        const Json json = Json::parse(line, nullptr, false);
        if (!json.is_discarded() && json.contains("eval_loss"))
            found[json.at("step").get<int64_t>()] = json.dump();
    }
    return found;
}

// Returns the step of the evaluation with the least loss, without the one before training; -1:
// there is none.
inline int64_t best_evaluation(const SavingJob& job) {
    int64_t best = -1;
    double least = 0;
    for (const auto& [step, line] : evaluations(job)) {
        const double loss = Json::parse(line).at("eval_loss");
        if (step == 0 || (best > 0 && loss >= least)) continue;
        least = loss;
        best = step;
    }
    return best;
}

struct KeptCheckpoints {
    std::vector<int64_t> steps;  // newest first
    int64_t best = -1;
    bool operator==(const KeptCheckpoints&) const = default;
};

inline KeptCheckpoints kept_in(const SavingJob& job) {
    const std::unique_ptr<FileTree> tree = make_disk_tree();
    KeptCheckpoints kept;
    for (const StoredCheckpoint& one :
         CheckpointStore(*tree, job.output() + "/checkpoints", 0).list()) {
        kept.steps.push_back(one.step);
        if (one.is_best) kept.best = one.step;
    }
    return kept;
}

// Makes JOB a run whose held-out loss falls and then rises, so that its best checkpoint is neither
// the first nor the last: the learning rate rises until it is far too large.
inline void make_rise(SavingJob& job) {
    job.steps = 60;
    job.interval = 7;
    job.eval_interval = 4;
    job.change = [](Json& config) {
        config["scheduler"] = {
            {"type", "WarmupLR"},
            {"params",
             {{"warmup_num_steps", 100}, {"warmup_max_lr", 1.0}, {"warmup_type", "linear"}}}};
        config["dslaunch"]["save"]["best"] = "eval_loss";
        config["dslaunch"]["save"]["keep"] = 1;
        config["dslaunch"]["patience"] = 3;
    };
}

inline ProgramEnd run_rising(const SavingJob& job, bool resume) {
    return run_program(job.folder, job.command(resume));
}

// Returns the bytes that `ckpt export` writes for the checkpoint at PATH.
inline std::string exported_weights(const SavingJob& job, const std::string& path) {
    const std::string exported = job.folder.path() + "/exported.safetensors";
    std::filesystem::remove(exported);
    const ProgramEnd written =
        run_program(job.folder, {kDslaunch, "ckpt", "export", path, exported});
    INFO(written.err);
    CHECK(written.code == 0);
    return content_of(exported);
}

}  // namespace dslaunch::test
