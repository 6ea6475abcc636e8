// A checkpoint as its manifest.json describes it: docs/reference/checkpoint-format.md. Pure data;
// text in and out. No threads.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/kinds/dtype.h"
#include "base/range.h"
#include "storage/files/hash128.h"

namespace dslaunch::storage {

// The formats that this version reads; format_of() says which one it writes.
inline constexpr int64_t kCheckpointFormat = 3;

inline constexpr std::string_view kManifestName = "manifest.json";
// The name of a file that exists once all files were read and found whole, for this manifest.
inline constexpr std::string_view kVerifiedName = "verified";

enum class TensorKind : uint8_t {
    kTrained,    // weights and optimizer states
    kFrozen,     // weights alone
    kBuffer,     // rank 0's
    kRankBuffer  // another rank's own of the same name, which training moves
};

// One name for each TensorKind.
inline constexpr std::array<std::string_view, 4> kTensorKindNames{"trained", "frozen", "buffer",
                                                                  "rank_buffer"};

// The texts before and after the 32 digits of the last member: the file's end, byte for byte.
inline constexpr std::array<std::string_view, 2> kManifestEnd{",\"manifest_xxh3_128\":\"", "\"}\n"};

// True for a state that runs of any optimizer and number of hosts can go on without: the losses so
// far of 1-bit exchanges between hosts ("server_error" of the averages, "worker_error.H" of host
// H), the values that 1-bit LAMB keeps beside LAMB's states, and the states of updates that lag.
[[nodiscard]] bool is_further_state(std::string_view name);
[[nodiscard]] bool is_lagging_state(std::string_view name);

// The states of 1-bit LAMB that are not moments: the variance that goes on while the other one
// stays, and three numbers for each tensor (zero/states/tensor_states.h).
inline constexpr std::string_view kFreshVariance = "exp_avg_sq_fresh";
inline constexpr std::string_view kLambCoefficient = "lamb_coefficient";

// States of updates that lag. The first two end in the number of steps whose gradients wait. First:
// the gradients that wait for an update of the rest, -0 if a unit is important. Second: the same
// while the next step does that update. Third: 1 if a unit is important from that step on.
inline constexpr std::string_view kLagging = "lagging_gradients.";
inline constexpr std::string_view kLaggingDue = "lagging_gradients_due.";
inline constexpr std::string_view kLaggingChoice = "lagging_choice";

// CheckpointTensor::state_numel: the state has the tensor's shape.
inline constexpr int64_t kLikeTensor = -1;

// A name in the module that reads a tensor, or a part of it, in a shape of its own.
struct CheckpointView {
    std::string name;
    std::vector<int64_t> shape;
    // UNITS: elements of the tensor, in the order of its elements in files.
    std::vector<int64_t> strides;
    int64_t offset = 0;

    [[nodiscard]] int64_t numel() const;
    bool operator==(const CheckpointView&) const = default;
};

struct CheckpointTensor {
    std::string name;                   // the module's own
    std::vector<std::string> aliases;   // other names of the same tensor
    std::vector<CheckpointView> views;  // not of a kRankBuffer
    // False: a state_dict leaves NAME and ALIASES out. Training moves it, or it would not be here.
    bool persistent = true;
    TensorKind kind = TensorKind::kTrained;
    int rank = 0;               // kRankBuffer: the rank that it belongs to
    DType dtype = DType::kF32;  // the weights' type; states are fp32
    std::vector<int64_t> shape;
    // The strides of the tensor in memory, which also give the order of its elements in files.
    // Empty: row-major.
    std::vector<int64_t> strides;
    int64_t updates = 0;  // kTrained: optimizer updates it has had
    // Elements of its states, or kLikeTensor. States after the last one listed have the tensor's
    // shape. The elements of others are counted in row-major order.
    std::vector<int64_t> state_numel;

    [[nodiscard]] int64_t numel() const;
    // True if STATE is the weights or has the tensor's shape.
    [[nodiscard]] bool is_like_tensor(int state) const {
        return state < 0 || state >= std::ssize(state_numel) || state_numel[state] == kLikeTensor;
    }
    // Returns the elements of the weights (kWeights) or of a state.
    [[nodiscard]] int64_t numel_of(int state) const {
        return is_like_tensor(state) ? numel() : state_numel[state];
    }
    bool operator==(const CheckpointTensor&) const = default;
};

inline constexpr int kWeights = -1;

// Elements of a tensor's weights or of one of its states.
struct CheckpointPiece {
    int tensor = 0;        // index into Checkpoint::tensors
    int state = kWeights;  // or index into Checkpoint::states
    Range elements;        // elements in the order of the tensor's memory
    bool operator==(const CheckpointPiece&) const = default;
};

struct WrittenPiece {
    CheckpointPiece piece;
    int64_t offset_bytes = 0;  // begin of the piece in the file
    Hash128 hash;              // hash of the piece's bytes
    bool finite = true;        // no NaN, no infinity
    bool operator==(const WrittenPiece&) const = default;
};

// A .safetensors file; its entries are the pieces, in order.
struct CheckpointFile {
    std::string name;
    int64_t bytes = 0;
    Hash128 header_hash;  // hash of everything before the first piece
    std::vector<WrittenPiece> pieces;
    bool operator==(const CheckpointFile&) const = default;
};

// encode() makes the text that goes to rank 0. decode() throws Error{kInternal}.
[[nodiscard]] std::string encode(const CheckpointFile& file);
[[nodiscard]] CheckpointFile decode_checkpoint_file(std::string_view bytes);

// The part of training that is not in tensors.
struct TrainingState {
    int64_t step = 0;          // optimizer steps done, skipped ones included
    int64_t updates = 0;       // steps that were not skipped: the learning rate follows them
    int64_t samples_seen = 0;  // position in the order of data
    uint64_t seed = 0;         // seed of data order and of dropout
    double loss = 0;           // the last step's loss
    double loss_scale = 1;
    int64_t scale_steps = 0;  // this and the next two as in LossScaleState
    int64_t scale_good_steps = 0;
    int64_t scale_hysteresis_left = 1;
    bool operator==(const TrainingState&) const = default;
};

// The data that a run trains on (job/files/data_mark.h). All empty: an earlier version or another
// program wrote the checkpoint.
struct DataMark {
    std::string train, held_out;  // fingerprints of the files; held_out is empty without its own
    std::string samples;          // how samples are made of them, in words
    bool operator==(const DataMark&) const = default;
};

struct Checkpoint {
    int64_t format = 1;
    std::string version;  // the version of dslaunch that wrote it
    std::string id;       // the save's own: the same in each of its files
    std::string created;  // UTC, ISO 8601
    TrainingState training;
    int64_t world_size = 1;
    int64_t zero_stage = 0;
    std::string optimizer;            // "adamw", … as config names it
    std::vector<std::string> states;  // "exp_avg", "exp_avg_sq"
    // The mark of the weights that adapters train beside (graph/adapter); empty without adapters.
    std::string base_fingerprint;
    DataMark data;
    std::string config_json;  // resolved, as run.json has it
    std::vector<CheckpointTensor> tensors;
    std::vector<CheckpointFile> files;

    [[nodiscard]] bool finite() const;
    // Returns the oldest format that can hold this: 3 with views, 2 if a state has its own number
    // of elements, else 1.
    [[nodiscard]] int64_t least_format() const;
    // Returns the index of the tensor of that name or alias, or -1. It does not look at kRankBuffer
    // tensors or views.
    [[nodiscard]] int find(std::string_view name) const;
    bool operator==(const Checkpoint&) const = default;
};

// Returns manifest.json. Its last member is the XXH3-128 of everything before it.
[[nodiscard]] std::string manifest_text(const Checkpoint& checkpoint);
// Throws Error{kCheckpoint} naming PATH and the fault: damage, a newer format, or pieces that do
// not tile every tensor and state exactly.
[[nodiscard]] Checkpoint parse_manifest(const std::string& path, std::string_view text);

// Throws Error{kCheckpoint} naming the first tensor or file that is wrong.
void check_checkpoint(const Checkpoint& checkpoint);
// Checks the part that needs no files: names, shapes and places of the tensors.
void check_tensors(const Checkpoint& checkpoint);

// True for a valid name of a file in a checkpoint's folder: [A-Za-z0-9._-], not beginning with '.',
// and not the manifest's.
[[nodiscard]] bool is_file_name(std::string_view name);

// Returns the text that marks the checkpoint with this MANIFEST as verified.
[[nodiscard]] std::string verified_mark(std::string_view manifest);

}  // namespace dslaunch::storage
