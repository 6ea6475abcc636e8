// Checks a TorchScript archive before LibTorch reads it. LibTorch trusts the numbers in an archive:
// a tensor may claim memory outside of its record, a pickle may use a memo index that costs
// gigabytes, and code may nest until the stack overflows. All of this is checked here, in the same
// bytes that LibTorch gets later. Data path: zip -> [here] -> graph/archive. Pure, no LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "storage/files/zip_archive.h"
#include "storage/pickle/pickle.h"

namespace dslaunch::storage {

// Returns the limit for the total size of all tensors and storages in an archive's pickles. Tensors
// may share elements (for example in an expanded mask), so their total may exceed the file's size.
[[nodiscard]] int64_t script_bytes_max(int64_t file_bytes);

// An archive that was checked: its pickles and its code.
class ScriptArchive {
  public:
    // Returns the content of a record, decompressed if it is deflated.
    using Read = std::function<std::string(const ZipRecord&)>;

    // FILE_BYTES is the size of the whole archive. Throws Error{kInput} that begins with PATH if
    // the pickle of the module or of its constants is missing or refused by pickle.h, if a tensor
    // is outside of its record or has an impossible shape, if the total size of all tensors is much
    // larger than the file, if numbers are not little-endian, or if script_code.h refuses the code.
    ScriptArchive(const std::string& path, const ZipDirectory& directory, int64_t file_bytes,
                  const Read& read);

    // Return the values of data.pkl and constants.pkl, and the bytes from which they were read.
    [[nodiscard]] const Pickle& data() const { return *data_.values; }
    [[nodiscard]] const Pickle& constants() const { return *constants_.values; }
    [[nodiscard]] std::string_view data_bytes() const { return data_.bytes; }
    [[nodiscard]] std::string_view constants_bytes() const { return constants_.bytes; }
    // Returns the texts of code/….py, by the names of their records.
    [[nodiscard]] const std::map<std::string, std::string, std::less<>>& code() const {
        return code_;
    }

    // Returns how deep the code nests, which determines how much stack LibTorch's compiler needs.
    [[nodiscard]] int64_t code_depth() const { return code_depth_; }

  private:
    struct Part {
        std::string bytes;
        std::optional<Pickle> values;
    };

    std::map<std::string, std::string, std::less<>> code_;
    int64_t code_depth_ = 0;
    Part data_, constants_;
};

}  // namespace dslaunch::storage
