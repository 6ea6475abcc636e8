#include "storage/checkpoint/manifest.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "base/error.h"
#include "base/text/json.h"
#include "base/text/message.h"
#include "base/text/wire.h"

namespace dslaunch::storage {
namespace {

// Writes a number. A loss may be NaN or infinite, and JSON has no such numbers, so they become
// texts. -0 becomes -0.0, because readers take -0 for an integer.
void number(JsonWriter& json, std::string_view name, double value) {
    json.key(name);
    if (value == 0 && std::signbit(value)) {
        json.raw("-0.0");
    } else if (std::isfinite(value)) {
        json.value(value);
    } else {
        json.value(std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
    }
}

void numbers(JsonWriter& json, std::string_view name, const std::vector<int64_t>& values) {
    json.key(name).begin_array();
    for (const int64_t value : values) json.value(value);
    json.end_array();
}

void words(JsonWriter& json, std::string_view name, const std::vector<std::string>& values) {
    json.key(name).begin_array();
    for (const std::string& value : values) json.value(value);
    json.end_array();
}

void write_evals(JsonWriter& json, const EvalRecord& evals) {
    if (!evals.metric || evals.step == 0) return;  // no evaluation has counted yet
    json.key("evals").begin_object().field("metric", eval_metric_name(*evals.metric));
    json.field("step", evals.step);
    number(json, "value", evals.value);
    json.field("best_step", evals.best_step);
    number(json, "best", evals.best);
    json.field("without_gain", evals.without_gain).end_object();
}

void write_training(JsonWriter& json, const TrainingState& training) {
    json.key("training").begin_object();
    json.field("step", training.step)
        .field("updates", training.updates)
        .field("samples_seen", training.samples_seen);
    if (training.earlier_samples > 0) json.field("earlier_samples", training.earlier_samples);
    json.field("seed", training.seed);
    number(json, "loss", training.loss);
    number(json, "loss_scale", training.loss_scale);
    json.field("scale_steps", training.scale_steps)
        .field("scale_good_steps", training.scale_good_steps)
        .field("scale_hysteresis_left", training.scale_hysteresis_left);
    write_evals(json, training.evals);
    json.end_object();
}

void write_tensor(JsonWriter& json, const CheckpointTensor& tensor) {
    json.begin_object().field("name", tensor.name);
    if (!tensor.aliases.empty()) words(json, "aliases", tensor.aliases);
    if (!tensor.views.empty()) {
        json.key("views").begin_array();
        for (const CheckpointView& view : tensor.views) {
            json.begin_object().field("name", view.name);
            numbers(json, "shape", view.shape);
            numbers(json, "strides", view.strides);
            json.field("offset", view.offset).end_object();
        }
        json.end_array();
    }
    if (!tensor.is_persistent) json.field("persistent", false);
    json.field("kind", kTensorKindNames[static_cast<size_t>(tensor.kind)]);
    if (tensor.kind == TensorKind::kRankBuffer) json.field("rank", tensor.rank);
    json.field("dtype", dtype_name(tensor.dtype));
    numbers(json, "shape", tensor.shape);
    if (!tensor.strides.empty()) numbers(json, "strides", tensor.strides);
    if (tensor.kind == TensorKind::kTrained) json.field("updates", tensor.updates);
    if (!tensor.state_numel.empty()) {
        json.key("state_numel").begin_array();
        for (const int64_t numel : tensor.state_numel)
            numel == kLikeTensor ? json.raw("null") : json.value(numel);
        json.end_array();
    }
    json.end_object();
}

int64_t product_of(const std::vector<int64_t>& shape) {
    int64_t product = 1;
    for (const int64_t extent : shape) product *= extent;
    return product;
}

void write_piece(JsonWriter& json, const WrittenPiece& piece) {
    json.begin_object().field("tensor", piece.piece.tensor);
    if (piece.piece.state != kWeights) json.field("state", piece.piece.state);
    json.field("begin", piece.piece.elements.begin)
        .field("numel", piece.piece.elements.numel)
        .field("offset", piece.offset_bytes)
        .field("xxh3_128", hash_text(piece.hash));
    if (!piece.is_finite) json.field("finite", false);
    json.end_object();
}

void write_file(JsonWriter& json, const CheckpointFile& file) {
    json.begin_object()
        .field("name", file.name)
        .field("bytes", file.bytes)
        .field("header_xxh3_128", hash_text(file.header_hash));
    json.key("pieces").begin_array();
    for (const WrittenPiece& piece : file.pieces) write_piece(json, piece);
    json.end_array().end_object();
}

}  // namespace

std::string creation_time() {
    return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

int64_t CheckpointTensor::numel() const {
    return product_of(shape);
}

int64_t CheckpointView::numel() const {
    return product_of(shape);
}

int64_t Checkpoint::least_format() const {
    int64_t least = 1;
    for (const CheckpointTensor& tensor : tensors)
        least = std::max<int64_t>(least, !tensor.views.empty()         ? 3
                                         : !tensor.state_numel.empty() ? 2
                                                                       : 1);
    return least;
}

bool Checkpoint::is_finite() const {
    return std::all_of(files.begin(), files.end(), [](const CheckpointFile& file) {
        return std::all_of(file.pieces.begin(), file.pieces.end(),
                           [](const WrittenPiece& piece) { return piece.is_finite; });
    });
}

bool is_further_state(std::string_view name) {
    return name == "server_error" || name.starts_with("worker_error.") || name == kFreshVariance ||
           name == kLambCoefficient || is_lagging_state(name);
}

bool is_lagging_state(std::string_view name) {
    return name.starts_with(kLagging) || name.starts_with(kLaggingDue) || name == kLaggingChoice;
}

int Checkpoint::find(std::string_view name) const {
    for (size_t i = 0; i < tensors.size(); ++i) {
        const CheckpointTensor& tensor = tensors[i];
        if (tensor.kind == TensorKind::kRankBuffer) continue;
        if (tensor.name == name ||
            std::find(tensor.aliases.begin(), tensor.aliases.end(), name) != tensor.aliases.end())
            return static_cast<int>(i);
    }
    return -1;
}

std::string manifest_text(const Checkpoint& checkpoint) {
    JsonWriter json;
    json.begin_object()
        .field("format", checkpoint.format)
        .field("version", checkpoint.version)
        .field("id", checkpoint.id)
        .field("created", checkpoint.created);
    if (!checkpoint.launch.empty()) json.field("launch", checkpoint.launch);
    write_training(json, checkpoint.training);
    json.field("world_size", checkpoint.world_size)
        .field("zero_stage", checkpoint.zero_stage)
        .field("optimizer", checkpoint.optimizer);
    words(json, "states", checkpoint.states);
    if (!checkpoint.base_fingerprint.empty())
        json.field("base_fingerprint", checkpoint.base_fingerprint);
    if (!checkpoint.mask_fingerprint.empty())
        json.field("mask_fingerprint", checkpoint.mask_fingerprint);
    if (checkpoint.data != DataMark{})
        json.key("data")
            .begin_object()
            .field("train", checkpoint.data.train)
            .field("held_out", checkpoint.data.held_out)
            .field("samples", checkpoint.data.samples)
            .end_object();
    json.field("finite", checkpoint.is_finite()).field("config", checkpoint.config_json);
    json.key("tensors").begin_array();
    for (const CheckpointTensor& tensor : checkpoint.tensors) write_tensor(json, tensor);
    json.end_array().key("files").begin_array();
    for (const CheckpointFile& file : checkpoint.files) write_file(json, file);
    json.end_array().end_object();
    std::string text = json.text();
    text.pop_back();
    const std::string hash = hash_text(hash_of(text));
    text += kManifestEnd[0];
    text += hash;
    text += kManifestEnd[1];
    return text;
}

std::string encode(const CheckpointFile& file) {
    WireWriter out;
    out.string(file.name).i64(file.bytes);
    fields::write(out, file.header_hash);
    out.u64(file.pieces.size());
    for (const WrittenPiece& piece : file.pieces) fields::write(out, piece);
    return out.bytes();
}

CheckpointFile decode_checkpoint_file(std::string_view bytes) {
    WireReader in(bytes, "record of a checkpoint's file");
    CheckpointFile file;
    file.name = in.string();
    file.bytes = in.i64();
    fields::read(in, file.header_hash);
    for (uint64_t left = in.u64(); left > 0; --left) fields::read(in, file.pieces.emplace_back());
    if (!in.done())
        fail(ExitCode::kInternal, "record of a checkpoint's file {}: it has extra bytes at its end",
             file.name);
    return file;
}

std::string verified_mark(std::string_view manifest) {
    return fmt::format("{}\n", hash_text(hash_of(manifest)));
}

}  // namespace dslaunch::storage
