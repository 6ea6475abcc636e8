// The weights of a checkpoint for other programs: model.safetensors, or shards of it with
// model.safetensors.index.json, in Hugging Face's form. Streams: memory does not grow with the
// model, but by the largest tensor that does not lie in the order of its rows. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/kinds/dtype.h"
#include "storage/export/tensor_source.h"

namespace dslaunch::storage {

struct ExportOptions {
    std::string out;                 // folder, made if missing; or a file NAME.safetensors
    std::optional<DType> dtype;      // floating tensors' type: F32, BF16, F16; none: as they are
    std::optional<Bytes> shard_max;  // one file: none. A larger tensor has a file of its own
    bool all_names = true;           // a tied tensor under each of its names, or under one
    bool exclude_frozen = false;
    bool for_transformers = false;         // without the buffers that its models make themselves
    std::vector<std::string> exclude;      // globs of names, as the source has them
    std::string strip_prefix, add_prefix;  // parts of names; all parameters must have what is
                                           // stripped
    bool force = false;                    // replaces an earlier model in OUT
};

struct ExportReport {
    std::vector<std::string> files;     // paths, the index last
    std::vector<std::string> names;     // tensors' names, in the order of files
    std::vector<std::string> left_out;  // buffers and excluded ones, as the source has them
    Bytes bytes;                        // the tensors' bytes
};

// Makes OUT's folder; throws as export_weights does if something is in the way of OUT.
void check_export_place(const ExportOptions& options);
// Writes the files. Each appears whole or not at all, the index last. Throws Error{kUsage} if a
// name lacks the prefix, two tensors would have one name, or nothing is left to write;
// Error{kInput} if OUT holds a model and not FORCE, or a value beyond DTYPE would become infinite;
// Error{kDisk} with path, need and free; and as SOURCE does.
ExportReport export_weights(const TensorSource& source, const ExportOptions& options);

// Reads "5GB" as 5 * 10^9 bytes, "5GiB" as 5 * 2^30; also TB, GB, MB, KB, or a plain number of
// bytes from 100,000 on. Throws Error{kUsage} naming OPTION.
[[nodiscard]] Bytes parse_shard_bytes(const std::string& text, const char* option);

// Throws Error{kInput} unless FROM is a folder with a config.json.
void check_model_config(const std::string& from);
// Throws Error{kInput} naming the file if TO, which may be missing, has a file that belongs to a
// Hugging Face model beside its weights and FROM has no such file: it would stay there, of another
// model.
void require_room_for_config(const std::string& from, const std::string& to);
// Throws Error{kInput} naming the file if copy_model_config() would replace one, and not FORCE.
void require_new_config(const std::string& from, const std::string& to, bool force);
// Copies the files that belong to a Hugging Face model beside its weights (config.json, tokenizer*,
// …) from FROM to the folder TO, byte for byte but for the changes of config_for_weights() in
// config.json. Returns their names. Throws as check_model_config does, and Error{kDisk}.
std::vector<std::string> copy_model_config(const std::string& from, const std::string& to);
// Copies only the files that make and read tokens. Returns their names.
std::vector<std::string> copy_text_files(const std::string& from, const std::string& to);

}  // namespace dslaunch::storage
