#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "storage/checkpoint/manifest.h"

namespace dslaunch::storage {
namespace {

using Json = nlohmann::json;
constexpr int kDepthMax = 8;

// Throws an error about the member WHERE; parse_manifest() puts the path before the message.
[[noreturn]] void wrong(std::string_view where, std::string_view what) {
    fail(ExitCode::kCheckpoint, "{}: {}", where, what);
}

const Json& member(const Json& object, const char* name) {
    if (!object.is_object()) wrong(name, "is not in an object");
    const auto found = object.find(name);
    if (found == object.end()) wrong(name, "is missing");
    return *found;
}

int64_t integer(const Json& object, const char* name, int64_t least) {
    const Json& value = member(object, name);
    if (!value.is_number_integer() ||
        (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) ||
        value.get<int64_t>() < least)
        wrong(name, fmt::format("is not an integer of at least {}", least));
    return value.get<int64_t>();
}

int small_integer(const Json& object, const char* name) {
    const int64_t value = integer(object, name, 0);
    if (value > std::numeric_limits<int>::max()) wrong(name, "is too large");
    return static_cast<int>(value);
}

uint64_t natural(const Json& object, const char* name) {
    const Json& value = member(object, name);
    if (!value.is_number_unsigned()) wrong(name, "is not an integer of at least 0");
    return value.get<uint64_t>();
}

double number(const Json& object, const char* name) {
    const Json& value = member(object, name);
    if (value.is_number()) return value.get<double>();
    if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (value == "inf") return std::numeric_limits<double>::infinity();
    if (value == "-inf") return -std::numeric_limits<double>::infinity();
    wrong(name, "is not a number");
}

std::string text(const Json& object, const char* name) {
    const Json& value = member(object, name);
    if (!value.is_string()) wrong(name, "is not a string");
    return value.get<std::string>();
}

const Json& array(const Json& object, const char* name) {
    const Json& value = member(object, name);
    if (!value.is_array()) wrong(name, "is not a list");
    return value;
}

bool boolean(const Json& object, const char* name) {
    const Json& value = member(object, name);
    if (!value.is_boolean()) wrong(name, "is neither true nor false");
    return value.get<bool>();
}

std::vector<std::string> texts(const Json& object, const char* name) {
    std::vector<std::string> values;
    for (const Json& value : array(object, name)) {
        if (!value.is_string()) wrong(name, "contains something that is not a string");
        values.push_back(value.get<std::string>());
    }
    return values;
}

std::vector<int64_t> sizes(const Json& object, const char* name) {
    std::vector<int64_t> values;
    for (const Json& value : array(object, name)) {
        if (!value.is_number_unsigned() || value.get<uint64_t>() > INT64_MAX)
            wrong(name, "contains something that is not a size");
        values.push_back(value.get<int64_t>());
    }
    return values;
}

std::vector<int64_t> sizes_or_null(const Json& object, const char* name) {
    constexpr int64_t kNumelMax = INT64_MAX / 8;  // then the bytes fit an int64
    std::vector<int64_t> values;
    for (const Json& value : array(object, name)) {
        const bool fits = value.is_number_unsigned() && value.get<uint64_t>() <= kNumelMax;
        if (!fits && !value.is_null()) wrong(name, "contains something that is not a size");
        values.push_back(value.is_null() ? kLikeTensor : value.get<int64_t>());
    }
    return values;
}

std::optional<uint64_t> hex(std::string_view digits) {
    uint64_t value = 0;
    for (const char c : digits) {
        const bool letter = c >= 'a' && c <= 'f';
        if (!letter && (c < '0' || c > '9')) return std::nullopt;
        value = value << 4 | static_cast<uint64_t>(letter ? c - 'a' + 10 : c - '0');
    }
    return value;
}

std::optional<Hash128> hash_from(std::string_view digits) {
    if (digits.size() != 32) return std::nullopt;
    const auto high = hex(digits.substr(0, 16)), low = hex(digits.substr(16));
    if (!high || !low) return std::nullopt;
    return Hash128{*low, *high};
}

Hash128 hash(const Json& object, const char* name) {
    const auto value = hash_from(text(object, name));
    if (!value) wrong(name, "is not a hash of 32 digits");
    return *value;
}

EvalRecord evals_of(const Json& json) {
    EvalRecord evals;
    evals.metric = eval_metric_from_name(text(json, "metric"));
    if (!evals.metric) wrong("metric", "is unknown");
    evals.step = integer(json, "step", 1);
    evals.value = number(json, "value");
    evals.best_step = integer(json, "best_step", 0);
    evals.best = number(json, "best");
    evals.without_gain = integer(json, "without_gain", 0);
    if (evals.best_step > evals.step) wrong("best_step", "is after the newest evaluation");
    return evals;
}

TrainingState training_of(const Json& json) {
    TrainingState training;
    training.step = integer(json, "step", 0);
    training.updates = integer(json, "updates", 0);
    training.samples_seen = integer(json, "samples_seen", 0);
    if (json.contains("earlier_samples"))
        training.earlier_samples = integer(json, "earlier_samples", 0);
    training.seed = natural(json, "seed");
    training.loss = number(json, "loss");
    training.loss_scale = number(json, "loss_scale");
    training.scale_steps = integer(json, "scale_steps", INT64_MIN);
    training.scale_good_steps = integer(json, "scale_good_steps", INT64_MIN);
    training.scale_hysteresis_left = integer(json, "scale_hysteresis_left", INT64_MIN);
    if (json.contains("evals")) training.evals = evals_of(member(json, "evals"));
    return training;
}

CheckpointView view_of(const Json& json) {
    return {text(json, "name"), sizes(json, "shape"), sizes(json, "strides"),
            integer(json, "offset", 0)};
}

CheckpointTensor tensor_of(const Json& json) {
    CheckpointTensor tensor;
    tensor.name = text(json, "name");
    if (json.contains("aliases")) tensor.aliases = texts(json, "aliases");
    if (json.contains("views"))
        for (const Json& view : array(json, "views")) tensor.views.push_back(view_of(view));
    if (json.contains("persistent")) tensor.is_persistent = boolean(json, "persistent");
    const std::string kind = text(json, "kind");
    const auto found = std::find(kTensorKindNames.begin(), kTensorKindNames.end(), kind);
    if (found == kTensorKindNames.end()) wrong("kind", "is unknown");
    tensor.kind = static_cast<TensorKind>(found - kTensorKindNames.begin());
    if (tensor.kind == TensorKind::kRankBuffer) tensor.rank = small_integer(json, "rank");
    const auto dtype = dtype_from_name(text(json, "dtype"));
    if (!dtype) wrong("dtype", "is unknown");
    tensor.dtype = *dtype;
    tensor.shape = sizes(json, "shape");
    if (json.contains("strides")) tensor.strides = sizes(json, "strides");
    if (tensor.kind == TensorKind::kTrained) tensor.updates = integer(json, "updates", 0);
    if (json.contains("state_numel")) tensor.state_numel = sizes_or_null(json, "state_numel");
    return tensor;
}

WrittenPiece piece_of(const Json& json) {
    WrittenPiece piece;
    piece.piece.tensor = small_integer(json, "tensor");
    piece.piece.state = json.contains("state") ? small_integer(json, "state") : kWeights;
    piece.piece.elements.begin = integer(json, "begin", 0);
    piece.piece.elements.numel = integer(json, "numel", 0);
    piece.offset_bytes = integer(json, "offset", 0);
    piece.hash = hash(json, "xxh3_128");
    if (json.contains("finite")) piece.is_finite = boolean(json, "finite");
    return piece;
}

CheckpointFile file_of(const Json& json) {
    CheckpointFile file;
    file.name = text(json, "name");
    file.bytes = integer(json, "bytes", 0);
    file.header_hash = hash(json, "header_xxh3_128");
    for (const Json& piece : array(json, "pieces")) file.pieces.push_back(piece_of(piece));
    return file;
}

Checkpoint checkpoint_of(const Json& json) {
    Checkpoint checkpoint;
    checkpoint.format = integer(json, "format", 1);
    if (checkpoint.format > kCheckpointFormat)
        wrong("format",
              fmt::format("is {}, which only a newer dslaunch can read; this version ({}) supports "
                          "formats up to {}: install a newer version",
                          checkpoint.format, DSL_VERSION, kCheckpointFormat));
    checkpoint.version = text(json, "version");
    checkpoint.id = text(json, "id");
    checkpoint.created = text(json, "created");
    if (json.contains("launch")) checkpoint.launch = text(json, "launch");
    checkpoint.training = training_of(member(json, "training"));
    checkpoint.world_size = integer(json, "world_size", 1);
    checkpoint.zero_stage = integer(json, "zero_stage", 0);
    checkpoint.optimizer = text(json, "optimizer");
    checkpoint.states = texts(json, "states");
    if (json.contains("base_fingerprint"))
        checkpoint.base_fingerprint = text(json, "base_fingerprint");
    if (json.contains("mask_fingerprint"))
        checkpoint.mask_fingerprint = text(json, "mask_fingerprint");
    if (json.contains("data")) {
        const Json& data = member(json, "data");
        checkpoint.data = {text(data, "train"), text(data, "held_out"), text(data, "samples")};
    }
    checkpoint.config_json = text(json, "config");
    for (const Json& tensor : array(json, "tensors"))
        checkpoint.tensors.push_back(tensor_of(tensor));
    for (const Json& file : array(json, "files")) checkpoint.files.push_back(file_of(file));
    return checkpoint;
}

// Checks the end and the hash of the manifest TEXT, and returns its JSON object.
Json object_of(std::string_view text) {
    const size_t end_length = kManifestEnd[0].size() + 32 + kManifestEnd[1].size();
    if (text.size() < end_length) wrong("its end", "is missing: the file was truncated");
    const std::string_view end = text.substr(text.size() - end_length);
    const auto written = hash_from(end.substr(kManifestEnd[0].size(), 32));
    if (!end.starts_with(kManifestEnd[0]) || !end.ends_with(kManifestEnd[1]) || !written)
        wrong("its end", "is not valid: the file was truncated or changed");
    if (hash_of(text.substr(0, text.size() - end_length)) != *written)
        wrong("its hash", "does not match the content of the file: the file was changed");
    const auto shallow = [](int depth, Json::parse_event_t, Json&) {
        if (depth > kDepthMax) wrong("JSON", "is nested too deep");
        return true;
    };
    try {
        return Json::parse(text, shallow);
    } catch (const Json::exception& error) {
        wrong("JSON", printable(error.what()));
    }
}

}  // namespace

Checkpoint parse_manifest(const std::string& path, std::string_view text) {
    try {
        Checkpoint checkpoint = checkpoint_of(object_of(text));
        check_checkpoint(checkpoint);
        return checkpoint;
    } catch (const Error& error) {
        fail(ExitCode::kCheckpoint, "{}: is not a usable manifest: {}", printable(path),
             error.what());
    }
}

}  // namespace dslaunch::storage
