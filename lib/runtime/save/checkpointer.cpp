#include "runtime/save/checkpointer.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text/message.h"
#include "base/text/torch_reason.h"
#include "graph/archive/scalar_types.h"
#include "graph/memory/memory_order.h"
#include "runtime/save/files_via_rank0.h"
#include "storage/checkpoint/manifest.h"

namespace dslaunch::runtime {

struct Checkpointer::Save {
    storage::Checkpoint checkpoint;
    std::string folder;
    std::vector<int> disk_units;
    std::vector<Whole> wholes;
    storage::ShardPlan weights;
    storage::ShardPlan states;
    std::unique_ptr<storage::ShardWriter> weights_writer;
    std::unique_ptr<storage::ShardWriter> states_writer;
    std::optional<Snapshot> snapshot;
    std::vector<storage::CheckpointFile> files;
    TimePoint begin;
    Duration stopped{0};  // time for which begin() stopped training
    Duration written{0};  // time until this rank's part was durable

    [[nodiscard]] storage::ShardWriter& writer(const storage::CheckpointPiece& piece) {
        return piece.state == storage::kWeights ? *weights_writer : *states_writer;
    }
};

namespace {

// The number of updates that each parameter of a stage has had.
struct StageUpdates {
    static constexpr const char* kWhat = "updates of a stage's parameters";
    std::vector<std::pair<int, int64_t>> of_parameters;
};

// The files that a rank has written, as storage::encode() describes them.
struct RankFiles {
    static constexpr const char* kWhat = "files of a checkpoint";
    std::vector<std::string> files;
};

std::span<const std::byte> tensor_bytes(const at::Tensor& values) {
    return {static_cast<const std::byte*>(values.const_data_ptr()),
            static_cast<size_t>(values.nbytes())};
}

std::string new_id() {
    std::random_device random;
    return fmt::format("{:08x}{:08x}", random(), random());
}

std::string shard_name(const char* what, const Topology& topology) {
    return fmt::format("{}-{:05}-of-{:05}.safetensors", what, topology.rank(),
                       topology.world_size());
}

}  // namespace

Checkpointer::Checkpointer(CheckpointerParts parts)
    : parts_(std::move(parts)),
      store_(*parts_.tree, parts_.root, parts_.keeps, std::move(parts_.claim)),
      tensor_of_(parts_.model->parameters().size(), -1) {
    for (int p = 0; p < std::ssize(tensor_of_); ++p) {
        if (parts_.model->parameters()[p].may_be_unsaved(parts_.leaves_out_frozen)) continue;
        tensor_of_[p] = static_cast<int>(saved_.size());
        saved_.push_back(p);
    }
    for (int b = 0; b < std::ssize(parts_.model->buffers()); ++b)
        if (parts_.model->buffers()[b].is_persistent || parts_.moves_buffer.empty() ||
            parts_.moves_buffer[b] != 0)
            saved_buffers_.push_back(b);
}

Checkpointer::~Checkpointer() = default;

// Returns the number of updates that each parameter of the model has had; nullopt for an untrained
// parameter.
std::vector<std::optional<int64_t>> Checkpointer::updates() const {
    std::vector<std::optional<int64_t>> all(parts_.model->parameters().size());
    for (int i = 0; i < std::ssize(all); ++i) all[i] = parts_.state->updates_of(i);
    if (!parts_.of_stage) return all;
    StageUpdates mine;
    for (int i = 0; parts_.first_of_stage && i < std::ssize(all); ++i)
        if (all[i]) mine.of_parameters.emplace_back(i, *all[i]);
    for (const std::string& bytes : parts_.collectives->all_gather(encode(mine)))
        for (const auto& [parameter, updates] : decode<StageUpdates>(bytes).of_parameters)
            all.at(parameter) = updates;
    return all;
}

// Adds the descriptions of the tensors. They are the same on all ranks.
void Checkpointer::add_tensors(storage::Checkpoint& checkpoint) const {
    const graph::Model& model = *parts_.model;
    const std::vector<std::optional<int64_t>> all_updates = this->updates();
    for (const int i : saved_) {
        const graph::ModelParameter& parameter = model.parameters()[i];
        const std::optional<int64_t> updates = all_updates[i];
        storage::CheckpointTensor tensor;
        tensor.name = parameter.name;
        tensor.aliases = parameter.aliases;
        tensor.kind = updates ? storage::TensorKind::kTrained : storage::TensorKind::kFrozen;
        tensor.dtype = updates ? DType::kF32
                               : graph::dtype_of(parameter.name, parts_.state->untrained_values(i));
        tensor.shape = parameter.tensor.sizes().vec();
        tensor.strides = graph::strides_in_memory(parameter.tensor);
        tensor.updates = updates.value_or(0);
        if (updates) tensor.state_numel = parts_.state->state_numel(parameter.tensor);
        add_views(tensor, parameter.tensor);
        checkpoint.tensors.push_back(std::move(tensor));
    }
    for (int replica = 0; replica < parts_.replicas; ++replica)
        for (const int buffer : saved_buffers_) add_buffer(checkpoint, buffer, replica);
    checkpoint.format = checkpoint.least_format();
}

// Adds a buffer. Other ranks find its values by its first name; its aliases and views stand for the
// same values.
void Checkpointer::add_buffer(storage::Checkpoint& checkpoint, int index, int replica) const {
    const graph::ModelBuffer& buffer = parts_.model->buffers()[index];
    storage::CheckpointTensor tensor;
    tensor.name = buffer.name;
    tensor.kind = replica == 0 ? storage::TensorKind::kBuffer : storage::TensorKind::kRankBuffer;
    tensor.rank = replica;
    tensor.dtype = graph::dtype_of(buffer.name, buffer.tensor);
    tensor.shape = buffer.tensor.sizes().vec();
    tensor.strides = graph::strides_in_memory(buffer.tensor);
    if (replica == 0) {
        tensor.aliases = buffer.aliases;
        tensor.is_persistent = buffer.is_persistent;
        add_views(tensor, buffer.tensor);
    }
    checkpoint.tensors.push_back(std::move(tensor));
}

// Adds the further names of OWNER, a parameter or buffer, to TENSOR. If OWNER has another shape
// under one of these names, adds it as a view.
void Checkpointer::add_views(storage::CheckpointTensor& tensor, const at::Tensor& owner) const {
    const at::Tensor like = graph::like_in_memory(owner);
    for (const graph::ModelView& view : parts_.model->views()) {
        if (!view.owner.is_same(owner) || view.name.empty() || !view.is_persistent) continue;
        if (view.view.is_same() && tensor.is_persistent) {
            tensor.aliases.push_back(view.name);
            continue;
        }
        const at::Tensor made = view.view.of(like);
        tensor.views.push_back(
            {view.name, made.sizes().vec(), made.strides().vec(), made.storage_offset()});
    }
}

void Checkpointer::require_savable() const {
    storage::Checkpoint checkpoint = parts_.about;
    checkpoint.world_size = parts_.collectives->topology().world_size();
    add_tensors(checkpoint);
    try {
        storage::check_tensors(checkpoint);
    } catch (const Error& error) {
        fail(ExitCode::kInput, "a checkpoint of this model cannot be written: {}", error.what());
    }
}

// Returns true if this rank saves BUFFER. The first rank saves all buffers of the first replica.
bool Checkpointer::saves_buffer(size_t buffer, int replica) const {
    if (replica == 0) return first();
    return replica == parts_.replica &&
           (parts_.saves_buffer.empty() || parts_.saves_buffer[buffer] != 0);
}

// Adds untrained values. Each untrained parameter is saved as a whole by the rank with the least to
// save, each buffer by a rank that changes it.
void Checkpointer::add_untrained(Save& save) const {
    const graph::Model& model = *parts_.model;
    const Topology& topology = parts_.collectives->topology();
    std::vector<int64_t> load(static_cast<size_t>(topology.world_size()), 0);
    const auto parameters = std::ssize(saved_);
    for (int t = 0; t < std::ssize(save.checkpoint.tensors); ++t) {
        const storage::CheckpointTensor& tensor = save.checkpoint.tensors[t];
        if (tensor.kind == storage::TensorKind::kTrained) continue;
        const Range all{0, tensor.numel()};
        if (t >= parameters) {
            const auto index = static_cast<size_t>(
                saved_buffers_[static_cast<size_t>(t - parameters) % saved_buffers_.size()]);
            if (saves_buffer(index, tensor.rank))
                save.wholes.push_back({{t, storage::kWeights, all},
                                       graph::in_memory_order(model.buffers()[index].tensor)
                                           .to(at::kCPU, false, true)});
            continue;
        }
        const auto least = std::ranges::min_element(load);
        *least += all.numel * dtype_bytes(tensor.dtype);
        if (least - load.begin() == topology.rank())
            save.wholes.push_back(
                {{t, storage::kWeights, all},
                 graph::in_memory_order(parts_.state->untrained_values(saved_[t])).cpu(),
                 saved_[t]});
    }
}

std::unique_ptr<Checkpointer::Save> Checkpointer::plan_save(
    const storage::TrainingState& training) {
    auto save = std::make_unique<Save>();
    if (parts_.before_save) parts_.before_save();
    const Topology& topology = parts_.collectives->topology();
    save->checkpoint = parts_.about;
    save->checkpoint.training = training;
    save->checkpoint.world_size = topology.world_size();
    for (std::string& name : parts_.state->further_states())
        save->checkpoint.states.push_back(std::move(name));
    add_tensors(save->checkpoint);
    add_untrained(*save);
    save->weights.name = shard_name("weights", topology);
    save->states.name = shard_name("optimizer", topology);
    std::vector<SavedPiece> in_memory;
    const std::vector<SavedPiece> pieces = parts_.state->saved_pieces();
    const auto add = [&](const SavedPiece& piece) {
        storage::ShardPlan& plan = piece.state < 0 ? save->weights : save->states;
        plan.pieces.push_back(piece_of(piece));
    };
    // Pieces on disk come first, since they are read and written before training continues.
    for (const SavedPiece& piece : pieces) {
        if (piece.values != nullptr) continue;
        if (save->disk_units.empty() || save->disk_units.back() != piece.unit)
            save->disk_units.push_back(piece.unit);
        add(piece);
    }
    for (const SavedPiece& piece : pieces) {
        if (piece.values == nullptr) continue;
        in_memory.push_back(piece);
        add(piece);
    }
    for (const Whole& whole : save->wholes) save->weights.pieces.push_back(whole.piece);
    Snapshot::Fetch fetch;
    if (!parts_.state->values_on_host())
        fetch = [state = parts_.state](std::span<std::byte> into, const std::byte* values) {
            state->copy_values(into, values);
        };
    save->snapshot.emplace(std::move(in_memory), memory_for_copies(topology.local_world_size()),
                           std::move(fetch));
    return save;
}

// Opens the folder of a save. If that fails, tells all ranks the reason and returns false. All
// ranks call it.
bool Checkpointer::open_folder(Save& save) {
    int64_t own = 0;
    for (const storage::ShardPlan* plan : {&save.weights, &save.states})
        if (!plan->pieces.empty())
            own += storage::ShardWriter::file_bytes(*plan, save.checkpoint).value;
    Bytes need;
    for (const int64_t bytes : gather_values(*parts_.collectives, own)) need += Bytes{bytes};
    std::string answer;
    if (first()) {
        save.checkpoint.id = new_id();
        try {
            answer = "." + save.checkpoint.id + "." +
                     store_.begin(save.checkpoint.training.step, save.checkpoint.id, need);
        } catch (const Error& error) {
            answer = error.what();
        }
    }
    answer = parts_.collectives->all_gather(answer).front();
    if (!answer.starts_with('.')) {
        give_up(answer);
        return false;
    }
    const size_t dot = answer.find('.', 1);
    save.checkpoint.id = answer.substr(1, dot - 1);
    save.folder = answer.substr(dot + 1);
    return !parts_.via_first || open_own_folder(save, Bytes{own});
}

// If hosts share no file system, opens a folder on each host. The host's ranks write to this
// folder, and rank 0 collects the files later.
bool Checkpointer::open_own_folder(Save& save, Bytes own) {
    const Topology& topology = parts_.collectives->topology();
    std::string failure;
    if (topology.node_rank > 0)
        save.folder = parts_.root + save.folder.substr(save.folder.find_last_of('/'));
    if (topology.node_rank > 0 && topology.local_rank == 0) {
        const Bytes of_host{own.value * topology.local_world_size()};
        try {
            static_cast<void>(
                store_.begin(save.checkpoint.training.step, save.checkpoint.id, of_host));
        } catch (const Error& error) {
            failure = error.what();
        }
    }
    for (const std::string& one : parts_.collectives->all_gather(failure)) {
        if (one.empty()) continue;
        give_up(one);
        return false;
    }
    return true;
}

void Checkpointer::begin(const storage::TrainingState& training) {
    finish();
    const SystemClock clock;
    const TimePoint begin = clock.now();
    save_ = plan_save(training);
    save_->begin = begin;
    if (!open_folder(*save_)) return;
    phase_ = SavePhase::kWriting;
    try {
        if (!save_->disk_units.empty()) write_disk_units(*save_);
    } catch (const Error& error) {
        failure_ = error.what();
        phase_ = SavePhase::kFailed;
        return;
    }
    parts_.state->set_guard(&*save_->snapshot);
    run_in_thread([this] {
        write_part(*save_);
        phase_ = SavePhase::kWritten;
    });
    save_->stopped = clock.now() - begin;
}

void Checkpointer::run_in_thread(std::function<void()> work) {
    thread_ = SmallThread([this, work = std::move(work)] {
        try {
            work();
        } catch (const std::exception& error) {
            failure_ = torch_reason(error);
            phase_ = SavePhase::kFailed;
        }
    });
}

void Checkpointer::open_writers(Save& save) const {
    const auto open = [&](storage::ShardPlan& plan, std::unique_ptr<storage::ShardWriter>& writer) {
        if (!plan.pieces.empty() && writer == nullptr)
            writer = std::make_unique<storage::ShardWriter>(*parts_.tree, save.folder,
                                                            std::move(plan), save.checkpoint);
    };
    open(save.weights, save.weights_writer);
    open(save.states, save.states_writer);
}

void Checkpointer::write_disk_units(Save& save) {
    open_writers(save);
    for (const int unit : save.disk_units)
        parts_.state->bring_saved(unit, [&](std::span<const SavedPiece> pieces) {
            for (const SavedPiece& piece : pieces)
                save.writer(piece_of(piece))
                    .write(
                        {piece.values, static_cast<size_t>(piece.elements.numel) * sizeof(float)});
        });
}

void Checkpointer::write_part(Save& save) {
    open_writers(save);
    save.snapshot->write_all([&](const SavedPiece& piece, std::span<const std::byte> bytes) {
        save.writer(piece_of(piece)).write(bytes);
    });
    for (Whole& whole : save.wholes) {
        save.writer(whole.piece).write(tensor_bytes(whole.values));
        whole.values.reset();
        if (whole.parameter >= 0) static_cast<void>(parts_.model->release_pages(whole.parameter));
    }
    for (storage::ShardWriter* writer : {save.weights_writer.get(), save.states_writer.get()})
        if (writer != nullptr) save.files.push_back(writer->finish());
    save.weights_writer.reset();
    save.states_writer.reset();
    parts_.tree->sync_folder(save.folder);
    save.written = SystemClock().now() - save.begin;
}

void Checkpointer::advance(std::span<const SavePhase> ranks) {
    const auto any = [&](SavePhase phase) { return std::ranges::count(ranks, phase) > 0; };
    if (any(SavePhase::kWriting) || any(SavePhase::kCommitting)) return;
    if (any(SavePhase::kFailed)) return fail_together();
    if (any(SavePhase::kCommitted)) {
        saved_step_ = save_->checkpoint.training.step;
        longest_ = std::max(longest_, SystemClock().now() - save_->begin);
        save_.reset();
        phase_ = SavePhase::kIdle;
        return;
    }
    if (!any(SavePhase::kWritten)) return;
    thread_.join();
    parts_.state->set_guard(nullptr);
    if (parts_.via_first) {
        const std::string why =
            bring_to_first(*parts_.tree, *parts_.collectives, save_->folder, save_->files);
        if (!why.empty()) return give_up(why);
    }
    RankFiles mine;
    for (const storage::CheckpointFile& file : save_->files)
        mine.files.push_back(storage::encode(file));
    std::vector<storage::CheckpointFile> files;
    for (const std::string& bytes : parts_.collectives->all_gather(encode(mine)))
        for (const std::string& file : decode<RankFiles>(bytes).files)
            files.push_back(storage::decode_checkpoint_file(file));
    phase_ = first() ? SavePhase::kCommitting : SavePhase::kIdle;
    if (!first()) return;
    save_->checkpoint.files = std::move(files);
    run_in_thread([this] {
        commit();
        phase_ = SavePhase::kCommitted;
    });
}

void Checkpointer::commit() {
    Save& save = *save_;
    save.checkpoint.created = storage::creation_time();
    const std::string folder = store_.commit(save.checkpoint);
    Bytes bytes;
    for (const storage::CheckpointFile& file : save.checkpoint.files) bytes += Bytes{file.bytes};
    const auto seconds = [](Duration time) { return to_milliseconds(time) / 1e3; };
    if (!save.checkpoint.is_finite())
        log_warn(
            "checkpoint",
            "{} contains values that are not finite, so it does not count as a good checkpoint",
            folder);
    if (parts_.told)
        parts_.told(fmt::format(
            "{}: saved {} in {:.2f} s ({:.2f} s until written on this host); training paused for "
            "{:.0f} ms",
            folder, to_text(bytes), seconds(SystemClock().now() - save.begin),
            seconds(save.written), to_milliseconds(save.stopped + save.snapshot->held_up())));
}

void Checkpointer::fail_together() {
    thread_.join();
    parts_.state->set_guard(nullptr);
    const bool failed = phase_ == SavePhase::kFailed;
    const std::vector<std::string> reasons =
        parts_.collectives->all_gather(failed ? failure_ : std::string());
    const auto reason = std::ranges::find_if(reasons, [](const auto& r) { return !r.empty(); });
    give_up(fmt::format("rank {}: {}", reason - reasons.begin(), *reason));
}

// Returns true if the folder of the checkpoints was moved or removed.
bool Checkpointer::has_lost_root() const {
    try {
        return !parts_.tree->list(parts_.root);
    } catch (const Error&) {
        return false;
    }
}

// Gives up the save that is under way. WHY is the same on all ranks.
void Checkpointer::give_up(const std::string& why) {
    const int64_t step = save_->checkpoint.training.step;
    const std::string id = save_->checkpoint.id;
    save_.reset();  // closes the save's files before they are removed
    phase_ = SavePhase::kIdle;
    if (first() && !id.empty()) store_.abandon(step, id);
    const std::string text = fmt::format(
        "the checkpoint of step {} was not saved: {}{}", step, why,
        saved_step_ < 0   ? "; this run has no earlier checkpoint"
        : has_lost_root() ? fmt::format("; the checkpoints up to step {} are lost too", saved_step_)
                          : fmt::format("; the newest checkpoint is from step {}", saved_step_));
    if (!parts_.goes_on) fail(ExitCode::kCheckpoint, "{}", text);
    if (first()) log_warn("checkpoint", "{}; training continues", text);
}

void Checkpointer::finish() {
    for (;;) {
        thread_.join();
        const std::vector<SavePhase> phases = gather_values(*parts_.collectives, phase_.load());
        if (std::ranges::all_of(phases, [](SavePhase p) { return p == SavePhase::kIdle; })) return;
        advance(phases);
    }
}

}  // namespace dslaunch::runtime
