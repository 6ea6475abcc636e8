// The parts of a job that both training and `dslaunch plan` need: config, model, segments, data and
// the step plan of a rank. Plain data: set_up_job.h fills it in, using job_stages.h, job_tensor.h
// and job_layout.h.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/resolve/resolve.h"
#include "graph/lower/cpu_products.h"
#include "graph/segment/segmented_model.h"
#include "graph/tensor/tensor_check.h"
#include "graph/tensor/tensor_rank.h"
#include "graph/trust/trust.h"
#include "plan/choose/shard_choice.h"
#include "plan/choose/stage_choice.h"
#include "plan/pipeline/stage_model.h"
#include "plan/step/step_plan.h"
#include "runtime/comm/ranks/topology.h"
#include "runtime/data/data_source.h"
#include "zero/states/update_rules.h"

namespace dslaunch::job {

// The arguments of a job from the command line, and the functions that its role provides.
struct JobArguments {
    std::string model_path;
    std::string config_path;  // --config; empty: the config in the archive, else ds_config.json in
                              // its folder, else defaults
    std::vector<std::string> overrides;  // a.b=c (--set), or --option:a.b=c
    std::vector<std::string> begun;      // begun_values() of the run that is resumed
    bool trust_model = false;            // true: the model's code may use any operator
    int64_t segments = 0;                // 0: by whole layers
    bool plan_only = false;              // true: nothing will be trained
    bool plan_meshes = false;            // true: plans will be for various numbers of ranks, so the
                                         // config must not name a shard group
    // Chooses the device to compute on, when the config is known and before any tensor is made.
    // Empty: the CPU.
    std::function<c10::Device(const config::RunConfig&)> open_device;
    // Called with a description of the work that begins, such as "reading the model". May be empty.
    std::function<void(std::string_view)> begins;
    // Returns samples of the same form as the batches of a caller that feeds its own batches. The
    // files and the number of epochs in the config are then not used. Empty: the job reads the
    // config's files.
    std::function<runtime::DataSets(const runtime::DataRequest&)> fed_data;
};

// The ranks that work on each micro batch together.
struct SharingPlace {
    int index = 0;
    int size = 1;
    bool positions = false;  // true: the ranks divide the positions of each sample; false: the
                             // layers
    runtime::GroupPlace group;

    // Returns the index of the rank's shares of the parameters; 0 if they are whole.
    [[nodiscard]] int share() const { return positions ? 0 : index; }
};

// The tensor or sequence parallelism of a job: this rank's place, the plan, and everything else
// that the ranks of a group need.
struct JobSharing {
    SharingPlace place;
    std::unique_ptr<plan::TensorPlan> plan;  // null: every rank works alone
    // The model as it was loaded; null unless the parameters of JobSetup::model have been replaced
    // by shares. Both models share their buffers.
    std::unique_ptr<graph::Model> whole;
    std::unique_ptr<graph::SegmentedModel> held_out;  // in eval mode; null: no held-out data
    std::optional<graph::TensorCheck> check;          // present if this rank made it
    // The model info of the group's first rank. Present if shares differ in size and the job has
    // stages to choose.
    std::optional<plan::ModelInfo> of_first;

    // Returns true if the ranks divide layers, so that a rank may have shares of parameters.
    [[nodiscard]] bool splits() const { return plan != nullptr && !place.positions; }
    // Returns true if a rank has only a share of PARAMETER, an index into the model's parameters.
    [[nodiscard]] bool is_split(int parameter) const {
        return splits() && plan->parameters[parameter].rule != plan::TensorRule::kReplicated;
    }
    // Returns the number of ranks that divide the positions of each sample among themselves. These
    // ranks have the same rows. Returns 1 if positions are not divided.
    [[nodiscard]] int position_ranks() const { return place.positions ? place.size : 1; }
};

// A job as one rank sees it, before training. set_up_job() makes it.
struct JobSetup {
    config::Resolved resolved;
    std::string config_origin;  // "train.pt:ds_config.json", "ds_config.json", "defaults"
    graph::Trust trust = graph::Trust::kNone;
    std::unique_ptr<graph::Model> model;
    // Not null in a plan of a model without its weights. Products then compute only shapes.
    std::unique_ptr<graph::ShapesOnly> shapes_only;
    std::unique_ptr<graph::SegmentedModel> segmented;
    std::optional<runtime::DataSets> data;
    plan::ModelInfo model_info;
    std::string estimate;  // why model_info is an estimate; empty: it was measured
    JobSharing sharing;    // the ranks that work together on a micro batch, and their shares
    // All fields below describe the ranks that train the same parameters. In a pipeline, these are
    // the ranks of a stage; with tensor parallelism, the ranks with the same shares.
    runtime::PipelinePlace place;
    std::vector<plan::SegmentRange> parts;  // parts of the model; each stage has one per chunk
    plan::PipelineSchedule schedule;        // order of a pipeline's work
    std::vector<plan::TiedParameter> ties;  // parameters that several stages train
    // far_ranks[s] is how many ranks of this rank's stage on this host exchange values with ranks
    // of stage s on another host.
    std::vector<int> far_ranks;
    plan::ModelInfo info;
    plan::FlatLayout layout;
    std::vector<plan::ShardCost> shard_costs;    // empty unless shard auto has chosen
    ShardBy shard = ShardBy::kFlat;              // the partition's kind of shard
    std::unique_ptr<plan::Partition> partition;  // the owners, used from ZeRO stage 1 on
    zero::UpdateRules update_rules;              // by parameter of the model
    plan::StepPlanOptions plan_options;          // options of this rank
    bool on_gpu = false;  // true: each rank has a GPU that no other rank uses
    plan::StepPlan plan;

    // Returns the config with all its defaults filled in.
    [[nodiscard]] const config::RunConfig& config() const { return resolved.config; }
    // Returns the layers that are kept if layer_reduction removes layers of the model and no
    // teacher is set. Empty: all layers are kept.
    [[nodiscard]] std::vector<int64_t> kept_layers() const {
        const config::CompressionConfig& compression = config().compression;
        if (!compression.reduction.enabled || !compression.distill.teacher.empty()) return {};
        return compression.reduction.teacher_layers;
    }
    // Returns the model with whole parameters. Its parameters have the names that checkpoints and
    // final weights use.
    [[nodiscard]] graph::Model& whole_model() const {
        return sharing.whole ? *sharing.whole : *model;
    }
    // Returns the ranks that train the same parameters as this rank: in a pipeline the ranks of its
    // stage, otherwise all ranks.
    [[nodiscard]] const runtime::Topology& own_ranks() const { return place.of_stage; }
    // Returns the index of this rank's rows among the rows of all ranks.
    [[nodiscard]] int data_rank() const { return own_ranks().rank() / sharing.position_ranks(); }
    // Returns true if own_ranks() are only some of the job's ranks.
    [[nodiscard]] bool is_divided() const {
        return place.is_pipeline() || (!sharing.place.positions && sharing.place.size > 1);
    }
    // Returns the segments of each stage, by stage and chunk.
    [[nodiscard]] std::vector<std::vector<plan::SegmentRange>> stages() const {
        return plan::ranges_of_stages(schedule.kind, schedule.shape, parts);
    }
    // Returns the segments of this rank's stage, one range for each chunk.
    [[nodiscard]] std::vector<plan::SegmentRange> own_segments() const {
        return stages()[place.stage];
    }
};

}  // namespace dslaunch::job
