#include "job/run/job_saving.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "base/path.h"
#include "base/text.h"
#include "config/resolve/begun_run.h"
#include "graph/adapter/adapters.h"
#include "graph/compress/compressed_layers.h"
#include "graph/segment/compute_context.h"
#include "graph/segment/segmented_model.h"
#include "graph/writes/written_values.h"
#include "job/files/data_mark.h"
#include "job/files/resume.h"
#include "job/setup/job_stages.h"
#include "job/setup/job_tensor.h"
#include "job/setup/lower_options.h"
#include "job/setup/trial_batch.h"
#include "runtime/save/final_weights.h"
#include "storage/checkpoint/checkpoint_store.h"
#include "storage/checkpoint/manifest.h"
#include "storage/export/weight_export.h"
#include "storage/huggingface/model_folder.h"
#include "zero/states/shard_optimizer.h"

namespace dslaunch::job {

JobSaving::JobSaving(JobSetup& setup, RankComms& comms, SavingOptions options)
    : setup_(setup),
      comms_(comms),
      options_(std::move(options)),
      files_(storage::make_disk_tree()) {}

// Returns true if the files of saves must be brought to rank 0's disk. With a single host there is
// nothing to bring.
bool JobSaving::via_first() const {
    return saves() && setup_.config().save.via_rank0 && place().node_count() > 1;
}

std::string JobSaving::own_root() const {
    const bool is_own = via_first() && place().node_rank > 0;
    return is_own ? checkpoints_of_host(options_.output, place().node_rank)
                  : options_.output + "/checkpoints";
}

// Claims the folder before a checkpoint is read from it, so that from then on no other run can save
// there.
void JobSaving::claim() {
    if (!saves() || place().rank() != 0) return;
    storage::CheckpointClaim claim;
    claim.owner = options_.owner;
    if (options_.restarted) claim.wait_max = options_.claim_wait_max;
    claim.told = [](const std::string& line) { log_warn("checkpoint", "{}", line); };
    claim_ = storage::claim_checkpoints(*files_, own_root(), claim);
    if (options_.resume.empty() && !options_.restarted)
        storage::require_unused_output(
            *files_, options_.output, /*resumes=*/false,
            storage::config_files_of_result(options_.model_path, setup_.config().lora.on()));
}

void JobSaving::resume() {
    claim();
    if (saves() && !via_first()) require_shared_folder(*files_, comms_.job(), options_.output);
    reader_ = find_resume(
        *files_, comms_.job(),
        {options_.resume, options_.output, options_.restarted, options_.launch, via_first()});
    if (setup_.config().lora.on() && (saves() || reader_ != nullptr))
        base_ = graph::base_fingerprint(setup_.whole_model());
    if (saves() || reader_ != nullptr)
        masks_ = graph::fingerprint_of_masks(*setup_.model, setup_.segmented->lowered());
    if (place().rank() == 0 && !options_.is_fed && (saves() || reader_ != nullptr))
        data_ = data_mark(setup_.config().data);
    if (reader_ == nullptr) return;
    require_same_adapters();
    require_same_base();
    require_same_masks();
    require_same_numbers();
    saved_.emplace(*reader_, setup_.whole_model(),
                   zero::ShardOptimizer::state_names(setup_.config().optimizer),
                   /*leaves_out_frozen=*/setup_.config().lora.on());
    require_choice();
    if (!options_.is_fed) require_same_data();
    if (const auto& names = saved_->buffers_of_archive(); !names.empty())
        setup_.whole_model().leave_unsaved({names.begin(), names.end()});
    if (const graph::TensorRank* const shares = comms_.shares())
        saved_->read_shares(*setup_.sharing.plan, shares->part());
    const std::vector<int> untrained = setup_.model_info.untrained();
    saved_->restore_untrained(untrained, setup_.own_ranks().rank(),
                              setup_.own_ranks().world_size());
    share_untrained(setup_, untrained);
    if (place().rank() == 0) describe_resume();
}

void JobSaving::require_same_adapters() const {
    const std::string other =
        config::other_lora_text(setup_.config().lora, reader_->checkpoint().config_json);
    if (!other.empty()) fail(ExitCode::kCheckpoint, "{}: {}", reader_->folder(), printable(other));
}

// Adapters are useful only with the weights that they were trained with.
void JobSaving::require_same_base() const {
    const std::string& saved = reader_->checkpoint().base_fingerprint;
    if (saved.empty() || saved == base_) return;
    fail(ExitCode::kCheckpoint,
         "{}: its adapters were trained on base weights that differ from the weights of {} "
         "(fingerprint {}, here {}): resume with the model that the run began with, or start a new "
         "run from the adapter (dslaunch.lora.init)",
         reader_->folder(), printable(options_.model_path), saved, base_.empty() ? "none" : base_);
}

// Compares the masks of this run with the checkpoint's. Checkpoints do not contain masks, because a
// run computes them again from the model's file. A checkpoint without a mask fingerprint was saved
// without masks, or by another program.
void JobSaving::require_same_masks() const {
    const std::string& saved = reader_->checkpoint().mask_fingerprint;
    if (saved == masks_) return;
    if (masks_.empty())
        fail(ExitCode::kCheckpoint,
             "{}: its weights were trained with masks (method l1 in compression_training), but the "
             "config of this run has no masks: resume with the section compression_training that "
             "the run began with",
             reader_->folder());
    if (saved.empty())
        fail(ExitCode::kCheckpoint,
             "{}: the run that saved this checkpoint had no masks, or was not a run of dslaunch. "
             "Method l1 in compression_training makes masks from the weights in {}, which do not "
             "fit the weights of the checkpoint: export the checkpoint (dslaunch ckpt export), and "
             "begin a new run from the exported weights",
             reader_->folder(), printable(options_.model_path));
    fail(ExitCode::kCheckpoint,
         "{}: its weights were trained with masks that differ from the masks that method l1 in "
         "compression_training makes of {} (fingerprint {}, here {}): resume with the model file "
         "and the section compression_training that the run began with",
         reader_->folder(), printable(options_.model_path), saved, masks_);
}

// Refuses to resume if the config gives no learning rate, clipping or batch size, and the present
// default differs from the value with which the run began. Normally, the launcher takes the values
// from the run's run.json, but this file may be elsewhere.
void JobSaving::require_same_numbers() const {
    const std::vector<std::string> began =
        config::begun_otherwise(setup_.resolved, reader_->checkpoint().config_json);
    if (began.empty()) return;
    fail(ExitCode::kConfig,
         "{}: its run trained with {}, but these values are not set here, and the defaults are now "
         "different: add them to continue as the run began, or set other values",
         reader_->folder(), join(began, " "));
}

// Returns the files of training data that the checkpoint's run and this run name; empty if both
// have the same name, or if the earlier one is not recorded.
std::string JobSaving::data_names() const {
    const auto plain = [](const std::string& path) {
        return std::filesystem::path(path).lexically_normal().string();
    };
    const std::string before = plain(config::begun_data(reader_->checkpoint().config_json));
    const std::string now = plain(setup_.config().data.train_path);
    if (before.empty() || before == now) return "";
    return fmt::format("the earlier run trained on {}, but --data is {}", printable(before),
                       printable(now));
}

// Compares the data on rank 0 and shares the result with all ranks.
void JobSaving::require_same_data() {
    std::string difference;
    const storage::DataMark& saved = reader_->checkpoint().data;
    const bool first = place().rank() == 0;
    if (first) difference = data_difference(saved, data_);
    if (const std::string names = first ? data_names() : "";
        !difference.empty() && !names.empty()) {
        log_detail("checkpoint", "{}", difference);
        difference = names;
    }
    difference = comms_.job().all_gather(difference).front();
    begins_data_ = !difference.empty();
    if (begins_data_ && !options_.new_data)
        fail(ExitCode::kCheckpoint,
             "{}: its run used other data than this run would: {}. Resume with the data and the "
             "settings of dslaunch.data that the run began with, or add --new-data to continue "
             "with the new data from its first sample",
             reader_->folder(), difference);
    if (!first) return;
    if (begins_data_)
        log_info("checkpoint",
                 "--new-data: training continues from the first sample of other data: {}",
                 difference);
    if (saved == storage::DataMark{})
        log_info("checkpoint",
                 "{} does not record the data that its run used, so the data is not compared",
                 reader_->folder());
}

storage::TrainingState JobSaving::training() const {
    storage::TrainingState training = saved_ ? saved_->training() : storage::TrainingState{};
    if (begins_data_) {
        training.earlier_samples += training.samples_seen;
        training.samples_seen = 0;
        training.evals = {};  // results on different data cannot be compared
    }
    return training;
}

// Refuses a checkpoint that does not contain a choice of important units, unless the run has not
// yet reached the update in which the units are chosen.
void JobSaving::require_choice() const {
    const config::LaggingConfig& lagging = setup_.config().lagging;
    const int64_t updates = saved_->training().updates;
    if (!lagging.on || updates < std::max<int64_t>(1, lagging.warm_up_steps)) return;
    const std::vector<std::string>& states = saved_->checkpoint().states;
    if (std::ranges::any_of(states, storage::is_lagging_state)) return;
    fail(ExitCode::kConfig,
         "zero_optimization.zenflow: {} does not say which units are important, because the run "
         "that saved it updated everything in each of its {}: set "
         "zero_optimization.zenflow.full_warm_up_rounds to {} or more, so that this run chooses "
         "the units first",
         reader_->folder(), counted(updates, "update"), updates + 1);
}

void JobSaving::describe_resume() const {
    const storage::Checkpoint& checkpoint = saved_->checkpoint();
    const storage::TrainingState& training = saved_->training();
    log_info("checkpoint",
             "resuming from {}: after step {} and {} samples, saved by {} at ZeRO stage {}",
             reader_->folder(), training.step, training.samples_seen,
             counted(checkpoint.world_size, "rank"), checkpoint.zero_stage);
    const uint64_t seed = setup_.config().seed;
    if (training.step > 0 && training.seed != seed)
        log_warn("checkpoint",
                 "dslaunch.seed is {}, but was {}: the order of the data changes from here on",
                 seed, training.seed);
    if (checkpoint.states.empty() && training.step > 0)
        log_warn("checkpoint", "the checkpoint has no optimizer states: they start at zero");
    if (const auto& names = saved_->buffers_of_archive(); !names.empty())
        log_info("checkpoint",
                 "the checkpoint has no buffer {}{}: the run begins with the values in the model's "
                 "archive, and does not save these buffers either (TorchScript does not record "
                 "persistent=False)",
                 names.front(),
                 names.size() > 1 ? fmt::format(" and {} more", names.size() - 1) : "");
}

void JobSaving::begin(runtime::SavableState& state, runtime::ModelBuffers& buffers,
                      bool own_buffers) {
    if (reader_ != nullptr && sets_aside()) aside_after_ = reader_->checkpoint().training.step;
    if (saves()) open_checkpointer(state, buffers, own_buffers);
    saved_.reset();
    reader_.reset();
    if (via_first() && place().node_rank > 0 && place().local_rank == 0)
        files_->remove_folder(resume_copy(options_.output, place().node_rank));
}

// Returns true on rank 0 if the user named an earlier checkpoint of this run: the later checkpoints
// are then set aside, so that a later --resume does not continue from one of them.
bool JobSaving::sets_aside() const {
    const bool is_named = !options_.resume.empty() && options_.resume != "auto";
    if (!saves() || !is_named || place().rank() != 0) return false;
    std::error_code unreadable;  // if set, the folder is not this run's
    return std::filesystem::equivalent(folder_of(reader_->folder()), own_root(), unreadable);
}

void JobSaving::begin_steps() {
    comms_.job().barrier();
    if (!aside_after_) return;
    std::random_device random;
    storage::CheckpointStore(*files_, own_root(), {})
        .set_aside_later(*aside_after_, fmt::format("{:08x}{:08x}", random(), random()));
    aside_after_.reset();
}

void JobSaving::open_checkpointer(runtime::SavableState& state, runtime::ModelBuffers& buffers,
                                  bool own_buffers) {
    const config::SaveConfig& save = setup_.config().save;
    const runtime::Topology& own = setup_.own_ranks();
    runtime::CheckpointerParts parts;
    parts.tree = files_.get();
    parts.root = own_root();
    parts.claim = std::move(claim_);
    parts.keeps = {save.keep, save.best.has_value()};
    parts.goes_on = save.goes_on && !options_.is_fed;  // a caller learns of a failed save from the
                                                       // error
    parts.via_first = via_first();
    parts.model = &setup_.whole_model();
    parts.leaves_out_frozen = setup_.config().lora.on();
    parts.state = &state;
    parts.collectives = &comms_.job();
    parts.replicas = own_buffers ? own.world_size() : 1;
    parts.replica = own.rank();
    if (setup_.is_divided()) parts.saves_buffer = buffers_first_read(setup_);
    parts.of_stage = comms_.stages() != nullptr;
    parts.first_of_stage = own.rank() == 0 && setup_.sharing.place.index == 0;
    if (comms_.stages() != nullptr) parts.before_save = [&] { bring_buffers(buffers); };
    parts.about = about();
    parts.told = [](const std::string& line) { log_info("checkpoint", "{}", line); };
    parts.moves_buffer = moved_buffers();
    checkpointer_.emplace(std::move(parts));
    checkpointer_->require_savable();
    if (saved_) checkpointer_->set_saved_step(saved_->training().step);
}

// Returns a mark for each buffer: true if forward may change the buffer in training, by a write in
// place or by assigning a new value to it.
std::vector<char> JobSaving::moved_buffers() const {
    const graph::LoweredGraph& lowered = setup_.segmented->lowered();
    std::vector<char> moved(setup_.model->buffers().size(), lowered.takes_module ? 1 : 0);
    const auto written = graph::find_written_values(*lowered.graph);
    for (size_t i = 0; i < lowered.buffers.size(); ++i)
        if (written.count(lowered.graph->inputs()[lowered.first_buffer() + i]) > 0)
            moved[lowered.buffers[i]] = 1;
    for (const graph::ModelState& state : lowered.states) {
        const c10::IValue value = state.object->getAttr(state.attribute);
        const int buffer = value.isTensor() ? setup_.model->buffer_index(value.toTensor()) : -1;
        if (buffer >= 0) moved[buffer] = 1;
    }
    return moved;
}

storage::Checkpoint JobSaving::about() const {
    storage::Checkpoint checkpoint;
    const config::RunConfig& config = setup_.config();
    checkpoint.version = DSL_VERSION;
    checkpoint.launch = options_.launch;
    checkpoint.zero_stage = setup_.plan_options.stage;
    checkpoint.optimizer = zero::ShardOptimizer::name(config.optimizer);
    checkpoint.states = zero::ShardOptimizer::state_names(config.optimizer);
    checkpoint.base_fingerprint = base_;
    checkpoint.mask_fingerprint = masks_;
    checkpoint.data = data_;
    checkpoint.config_json = config::resolved_json(setup_.resolved);
    return checkpoint;
}

void JobSaving::bring_buffers(runtime::ModelBuffers& buffers) {
    buffers.bring_from_stages(comms_.job(), setup_.place.stage, stages_of_buffers(setup_));
}

WrittenWeights JobSaving::write_weights(runtime::SavableState& state,
                                        runtime::ModelBuffers& buffers, const TrainedUntil& end) {
    if (comms_.stages() != nullptr && saves()) bring_buffers(buffers);
    // Everything that was saved is on rank 0's disk by now.
    if (via_first() && place().node_rank > 0 && place().local_rank == 0)
        files_->remove_folder(own_root());
    const runtime::FinalWeights weights{setup_.model.get(),
                                        &setup_.whole_model(),
                                        &state,
                                        &setup_.layout,
                                        comms_.stages(),
                                        comms_.shares(),
                                        comms_.own().collectives.get(),
                                        read_earlier(setup_),
                                        options_.output,
                                        setup_.config().lora,
                                        options_.model_path,
                                        compression_end(end.updates)};
    const std::string best = best_before(end.step);
    if (best.empty()) return {runtime::write_final_weights(weights), end.step};
    const int64_t step = place().rank() == 0 ? write_checkpoint_weights(weights, best) : 0;
    return {true, step};
}

// Returns the loss of BATCH with the model's weights as they are, on the CPU.
double JobSaving::loss_of_whole(const std::vector<c10::IValue>& batch) const {
    graph::LowerOptions options = lower_options(setup_.config(), c10::kCPU, /*training=*/false);
    options.compression = {};
    const graph::SegmentedModel whole =
        graph::SegmentedModel::make(setup_.whole_model(), options, /*segments=*/1);
    const graph::ComputeContext context(false, options.compute_dtype);
    const double loss = graph::loss_of(whole.forward(0, whole.first_inputs(batch), {}));
    setup_.whole_model().set_training(true);
    return loss;
}

runtime::CompressionEnd JobSaving::compression_end(int64_t updates) const {
    const graph::LoweredGraph& lowered = setup_.segmented->lowered();
    runtime::CompressionEnd end{&lowered.compressed, updates, setup_.config().seed};
    end.parameter_dtype = lowered.parameter_dtype;
    // After compression has removed zeros, sums of 16-bit values have fewer terms and are rounded
    // differently.
    constexpr double kOf32Bits = 1e-5, kOf16Bits = 1e-3;
    end.tolerance = lowered.compute_dtype == at::kFloat ? kOf32Bits : kOf16Bits;
    end.shrinks = lowered.shrinks;
    if (!end.shrinks.empty() && setup_.data && place().rank() == 0)
        end.loss = [this, batch = trial_batch(setup_)] { return loss_of_whole(batch); };
    return end;
}

// Returns the folder of the best checkpoint if its weights are the run's result. Returns "" if the
// checkpoint is of LAST_STEP, because its weights are in memory. The result is the same on all
// ranks.
std::string JobSaving::best_before(int64_t last_step) const {
    if (!saves() || !setup_.config().save.best) return "";
    std::string best;
    if (place().rank() == 0)
        for (const storage::StoredCheckpoint& one :
             storage::CheckpointStore(*files_, own_root(), {}).list())
            if (one.is_best && one.step != last_step) best = one.folder;
    return comms_.job().all_gather(best).front();
}

// Writes the weights of the checkpoint in FOLDER as the run's result, and returns its step.
int64_t JobSaving::write_checkpoint_weights(const runtime::FinalWeights& weights,
                                            const std::string& folder) const {
    const storage::CheckpointReader reader(*files_, folder);
    for (size_t file = 0; file < reader.checkpoint().files.size(); ++file)
        if (const std::string fault = reader.verify_file(file); !fault.empty())
            fail(ExitCode::kCheckpoint,
                 "{}: the weights of the best checkpoint cannot be written: {}", folder, fault);
    runtime::SavedState saved(reader, setup_.whole_model(),
                              zero::ShardOptimizer::state_names(setup_.config().optimizer),
                              /*leaves_out_frozen=*/setup_.config().lora.on());
    runtime::FinalWeights of_then = weights;
    of_then.compression.updates = saved.training().updates;
    runtime::write_saved_weights(of_then, saved);
    return reader.checkpoint().training.step;
}

}  // namespace dslaunch::job
