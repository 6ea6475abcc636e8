// The objects with which a rank of a test saves its state, and from which it resumes.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/save/saved_state.h"
#include "training_case.h"

namespace dslaunch::testing {

using namespace runtime;
using namespace storage;
using namespace zero;

// The state from which a rank resumes; empty: it starts from the beginning.
struct Resumed {
    std::optional<CheckpointReader> reader;
    std::optional<SavedState> saved;
    TrainingState training;

    Resumed(const TrainingCase& job, TrainingSetup& setup, const Topology& topology) {
        if (job.resume_from.empty()) return;
        reader.emplace(*job.tree, job.resume_from);
        saved.emplace(*reader, setup.model(), ShardOptimizer::state_names(job.optimizer));
        saved->restore_untrained(setup.info.untrained(), topology.rank(), topology.world_size());
        training = saved->training();
    }
};

inline std::unique_ptr<Checkpointer> checkpointer_for(const TrainingCase& job,
                                                      const TrainingSetup& setup,
                                                      SavableState& state,
                                                      Collectives& collectives) {
    if (job.tree == nullptr) return nullptr;
    CheckpointerParts parts;
    parts.tree = job.tree;
    if (!job.trees.empty()) {
        parts.tree = job.trees[collectives.topology().node_rank];
        parts.via_first = true;
    }
    parts.root = job.root;
    const int node_rank = collectives.topology().node_rank;
    if (parts.via_first && node_rank > 0) parts.root += ".host-" + std::to_string(node_rank);
    parts.keeps = job.save.keep;
    parts.goes_on = job.save.goes_on;
    parts.model = &setup.trained.model;
    parts.state = &state;
    parts.collectives = &collectives;
    parts.replicas = collectives.topology().world_size();
    parts.replica = collectives.topology().rank();
    parts.about.zero_stage = job.stage;
    parts.about.states = ShardOptimizer::state_names(job.optimizer);
    parts.about.optimizer = ShardOptimizer::name(job.optimizer);
    parts.about.config_json = "{}";
    return std::make_unique<Checkpointer>(std::move(parts));
}

}  // namespace dslaunch::testing
