// A checkpoint as its manifest.json describes it: docs/reference/checkpoint-format.md. Pure data;
// text in and out. No threads.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/kinds/dtype.h"
#include "base/kinds/eval_metric.h"
#include "base/range.h"
#include "storage/files/file_names.h"
#include "storage/files/hash128.h"

namespace dslaunch::storage {

// The newest format that this version reads; least_format() says which one it writes.
inline constexpr int64_t kCheckpointFormat = 3;

// The name of a file that marks a checkpoint as verified: all its files were read and found
// undamaged. The mark is valid for one manifest only.
inline constexpr std::string_view kVerifiedName = "verified";

// The kinds of tensors. A checkpoint stores different data for each kind.
enum class TensorKind : uint8_t {
    kTrained,    // weights and optimizer states
    kFrozen,     // weights only
    kBuffer,     // rank 0's buffer
    kRankBuffer  // a buffer that training changes, of a rank other than 0
};

// One name for each TensorKind.
inline constexpr std::array<std::string_view, 4> kTensorKindNames{"trained", "frozen", "buffer",
                                                                  "rank_buffer"};

// The texts before and after the 32 digits of the manifest's last member. Together with these
// digits, they are the end of the file, byte for byte.
inline constexpr std::array<std::string_view, 2> kManifestEnd{",\"manifest_xxh3_128\":\"", "\"}\n"};

// Returns true if a run can start without the state NAME, whatever its optimizer and its number of
// hosts. This is true for: the accumulated errors of 1-bit exchanges between hosts ("server_error"
// for the averages, "worker_error.H" for host H); the values that 1-bit LAMB keeps in addition to
// LAMB's states; and the states of lagging updates.
[[nodiscard]] bool is_further_state(std::string_view name);
// Returns true for the states of lagging updates alone.
[[nodiscard]] bool is_lagging_state(std::string_view name);

// The states of 1-bit LAMB that are not moments. The fresh variance is still updated while the
// variance in use is frozen. The coefficient consists of three numbers for each tensor (LambNumbers
// in zero/states/tensor_states.h).
inline constexpr std::string_view kFreshVariance = "exp_avg_sq_fresh";
inline constexpr std::string_view kLambCoefficient = "lamb_coefficient";

// The names of the states of lagging updates (zero/update/lagging_path.h). The first two names end
// with the number of steps whose gradients have been added up. kLagging has these gradients for
// unimportant units, and -0 for important units. If the next step applies the gradients, the state
// is saved as kLaggingDue instead of kLagging. kLaggingChoice is 1 in each unit that is important
// from the next step on.
inline constexpr std::string_view kLagging = "lagging_gradients.";
inline constexpr std::string_view kLaggingDue = "lagging_gradients_due.";
inline constexpr std::string_view kLaggingChoice = "lagging_choice";

// A value of CheckpointTensor::state_numel: the state has the tensor's shape.
inline constexpr int64_t kLikeTensor = -1;

// A view of a tensor: the module reads the tensor, or a part of it, under another name and with
// another shape.
struct CheckpointView {
    std::string name;
    std::vector<int64_t> shape;
    // Strides and offset count elements of the tensor, in the order in which files store them.
    std::vector<int64_t> strides;
    int64_t offset = 0;

    // Returns the number of elements.
    [[nodiscard]] int64_t numel() const;
    bool operator==(const CheckpointView&) const = default;
};

// A tensor of the module: its weights, and the states that the optimizer has for it.
struct CheckpointTensor {
    std::string name;                   // as in the module
    std::vector<std::string> aliases;   // other names of the same tensor
    std::vector<CheckpointView> views;  // empty for a kRankBuffer
    // False if a state_dict contains neither NAME nor ALIASES. The tensor is here only because
    // training changes it.
    bool is_persistent = true;
    TensorKind kind = TensorKind::kTrained;
    int rank = 0;               // the rank that has a kRankBuffer tensor
    DType dtype = DType::kF32;  // the weights' type; states are fp32
    std::vector<int64_t> shape;
    // The strides of the tensor in memory, which also give the order of its elements in files.
    // Empty: row-major.
    std::vector<int64_t> strides;
    int64_t updates = 0;  // kTrained: the number of its optimizer updates
    // The number of elements of each state, or kLikeTensor. States beyond the end of the list have
    // the tensor's shape. A state with a different number of elements is stored in row-major order.
    std::vector<int64_t> state_numel;

    // Returns the number of elements of the weights.
    [[nodiscard]] int64_t numel() const;
    // Returns true if STATE is the weights or a state with the tensor's shape.
    [[nodiscard]] bool is_like_tensor(int state) const {
        return state < 0 || state >= std::ssize(state_numel) || state_numel[state] == kLikeTensor;
    }
    // Returns the number of elements of the weights (kWeights) or of a state.
    [[nodiscard]] int64_t numel_of(int state) const {
        return is_like_tensor(state) ? numel() : state_numel[state];
    }
    bool operator==(const CheckpointTensor&) const = default;
};

// The index that stands for the weights among the indices of states.
inline constexpr int kWeights = -1;

// A range of elements of a tensor's weights or of one of its states.
struct CheckpointPiece {
    int tensor = 0;        // index into Checkpoint::tensors
    int state = kWeights;  // or an index into Checkpoint::states
    Range elements;        // elements in the order of the tensor's memory
    bool operator==(const CheckpointPiece&) const = default;
};

// A piece, as it was written to a file.
struct WrittenPiece {
    CheckpointPiece piece;
    int64_t offset_bytes = 0;  // where the piece begins in the file
    Hash128 hash;              // hash of the piece's bytes
    bool is_finite = true;     // no NaN, no infinity
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

// encode() makes the text that a rank sends to rank 0. decode_checkpoint_file() reads it; throws
// Error{kInternal}.
[[nodiscard]] std::string encode(const CheckpointFile& file);
[[nodiscard]] CheckpointFile decode_checkpoint_file(std::string_view bytes);

// The results of a run's evaluations that decide which checkpoint is best and whether the run ends
// early. An evaluation before the first step does not count.
struct EvalRecord {
    std::optional<EvalMetric> metric = {};  // not set, or `step` is 0, if no evaluation has counted
    int64_t step = 0;                       // step after which the newest evaluation was made
    double value = 0;                       // its result; may be a NaN
    int64_t best_step = 0;                  // step of the best evaluation; 0 if all were NaN
    double best = 0;                        // its result
    int64_t without_gain = 0;  // evaluations in a row, up to the newest, without enough gain
    bool operator==(const EvalRecord&) const = default;
};

// The state of training that is not in tensors.
struct TrainingState {
    int64_t step = 0;             // optimizer steps done, skipped ones included
    int64_t updates = 0;          // steps that were not skipped; they determine the learning rate
    int64_t samples_seen = 0;     // position in the order of data
    int64_t earlier_samples = 0;  // samples seen before the run changed to this data
    uint64_t seed = 0;            // for the order of data and for dropout
    double loss = 0;              // the last step's loss
    double loss_scale = 1;
    int64_t scale_steps = 0;  // this and the next two: see LossScaleState
    int64_t scale_good_steps = 0;
    int64_t scale_hysteresis_left = 1;
    EvalRecord evals = {};
    bool operator==(const TrainingState&) const = default;
};

// A description of the data that a run trains on (job/files/data_mark.h). All texts are empty if an
// earlier version or another program wrote the checkpoint.
struct DataMark {
    std::string train, held_out;  // fingerprints of the files; empty if there are no files
    std::string samples;          // how samples are made from the files, in words
    bool operator==(const DataMark&) const = default;
};

// All content of a manifest: facts about the run that saved, its tensors, and the files that store
// the tensors.
struct Checkpoint {
    int64_t format = 1;
    std::string version;  // the version of dslaunch that wrote it
    std::string id;       // identifies the save; the same in each of its files
    std::string created;  // UTC, ISO 8601
    std::string launch;   // the launch whose job saved it; empty if not known
    TrainingState training;
    int64_t world_size = 1;
    int64_t zero_stage = 0;
    std::string optimizer;            // as in the config: "adamw", …
    std::vector<std::string> states;  // "exp_avg", "exp_avg_sq"
    // The fingerprint of the base weights for which adapters are trained (graph/adapter); empty
    // without adapters.
    std::string base_fingerprint;
    // The fingerprint of the masks that compression made from the initial weights (graph/compress);
    // empty without such masks.
    std::string mask_fingerprint;
    DataMark data;
    std::string config_json;  // resolved, as in run.json
    std::vector<CheckpointTensor> tensors;
    std::vector<CheckpointFile> files;

    // Returns true if no piece of any file contains a NaN or an infinity.
    [[nodiscard]] bool is_finite() const;
    // Returns the oldest format that can describe this checkpoint: 3 if there are views, 2 if a
    // state's number of elements differs from its tensor's, else 1.
    [[nodiscard]] int64_t least_format() const;
    // Returns the index of the tensor with that name or alias, or -1. Ignores kRankBuffer tensors
    // and views.
    [[nodiscard]] int find(std::string_view name) const;
    bool operator==(const Checkpoint&) const = default;
};

// Returns the current time in the form of Checkpoint::created.
[[nodiscard]] std::string creation_time();

// Returns the text of manifest.json. Its last member is the XXH3-128 hash of everything before it.
[[nodiscard]] std::string manifest_text(const Checkpoint& checkpoint);
// Reads the manifest in TEXT. Throws Error{kCheckpoint} naming PATH and the fault: damage, a newer
// format, or pieces that do not cover each tensor and state exactly once.
[[nodiscard]] Checkpoint parse_manifest(const std::string& path, std::string_view text);

// Throws Error{kCheckpoint} naming the first tensor or file that is wrong.
void check_checkpoint(const Checkpoint& checkpoint);
// Checks the part that needs no files: names, shapes, strides and views of the tensors.
void check_tensors(const Checkpoint& checkpoint);

// Returns true for a valid name of a file in a checkpoint's folder: [A-Za-z0-9._-], not beginning
// with '.', and neither kManifestName nor kVerifiedName.
[[nodiscard]] bool is_file_name(std::string_view name);

// Returns the text that marks the checkpoint with this MANIFEST as verified.
[[nodiscard]] std::string verified_mark(std::string_view manifest);

}  // namespace dslaunch::storage
