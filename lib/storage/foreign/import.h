// Makes a checkpoint of ours out of what others wrote: a DeepSpeed checkpoint, or the weights of a
// .safetensors file or Hugging Face folder. Nothing in the source is executed: pickles are
// read by restricted_unpickler.h. Sources are mapped and copied in pieces of a few MiB, so memory
// does not grow with the model. One thread; blocks on the disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "storage/checkpoint/file_tree.h"

namespace dslaunch::storage {

enum class ForeignFormat : uint8_t {
    kDeepSpeed,   // a folder with `latest`, or a tag's (…/global_stepN)
    kSafetensors  // file, folder with model.safetensors or with model.safetensors.index.json
};
// "deepspeed", "safetensors".
[[nodiscard]] std::string_view foreign_format_name(ForeignFormat format);

// The format of what lies at PATH. Throws Error{kInput} naming PATH and what was looked for there;
// for a pickled state_dict (pytorch_model.bin) too, with how to convert it.
[[nodiscard]] ForeignFormat detect_foreign_format(const std::string& path);

// The mapping makes names of the source into names of the module that is to train.
struct NameMapping {
    std::string strip;  // off the front; every parameter and alias must have it, others are left
    std::string add;    // before what is left
};

struct ImportOptions {
    std::string source;  // see ForeignFormat
    std::string tag;     // DeepSpeed: the folder of the step; empty: the one that `latest` names
    NameMapping names;
    std::string root;  // the folder of step folders, as CheckpointStore's; made where it is not
    std::vector<std::string> frozen = {};  // DeepSpeedSource's
};

struct ImportReport {
    ForeignFormat format = ForeignFormat::kDeepSpeed;
    std::string writer;  // "DeepSpeed 0.19.8, ZeRO stage 2, 8 ranks"; "safetensors, 2 files"
    std::string folder;  // ROOT/step-N, committed
    int64_t step = 0;    // 0: weights alone
    int64_t tensor_count = 0;
    int64_t numel = 0;        // their weights' elements
    bool has_states = false;  // the optimizer's states were there
    bool finite = true;
    Bytes bytes;  // written
    // The notes tell a reader what the source has and a checkpoint of ours does not keep, and what
    // had to be derived. One sentence each.
    std::vector<std::string> notes;
};

// The committed checkpoint has one rank's files. All floating tensors of 16 bits become fp32, which
// loses nothing; others keep their dtype. Trained ones are kTrained with `updates` from the
// optimizer's own step; weights alone are kTrained too (integers and bools kBuffer), with no
// states, step 0. A checkpoint of the same step in ROOT is replaced. Throws Error{kInput} for a
// source that is damaged, incomplete or of a kind that is refused, naming file and reason;
// Error{kDisk} when writing fails. Then nothing is committed. TREE: where ROOT lies; the source is
// read from this machine's file system.
[[nodiscard]] ImportReport import_checkpoint(FileTree& tree, const ImportOptions& options);

}  // namespace dslaunch::storage
