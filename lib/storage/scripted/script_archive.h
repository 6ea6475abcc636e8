// Checks a TorchScript archive before LibTorch reads it. LibTorch trusts the numbers in an archive:
// a tensor may claim memory outside of its record, a pickle may name an entry of its memo that
// takes gigabytes, code may nest until the stack ends. This looks for all of that, in the bytes
// that LibTorch then gets. Data path: zip -> [here] -> graph/archive. Pure, no LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "storage/files/zip_archive.h"
#include "storage/pickle/restricted_unpickler.h"

namespace dslaunch::storage {

// Returns the most bytes that all tensors of an archive, and the storages that its pickles ask for,
// may have. Tensors share elements (an expanded mask), so they may be more than the file.
[[nodiscard]] int64_t script_bytes_max(int64_t file_bytes);

class ScriptArchive {
  public:
    // Gives the content of a record, expanded if it is deflated.
    using Read = std::function<std::string(const ZipRecord&)>;

    // FILE_BYTES is the whole archive's size. Throws Error{kInput} that begins with PATH: no pickle
    // of a module or of its constants, a pickle that restricted_unpickler.h refuses, a tensor
    // outside of its record or of an impossible shape, tensors that expand to much more than the
    // file, numbers that are not little-endian, or code that script_code.h refuses.
    ScriptArchive(const std::string& path, const ZipDirectory& directory, int64_t file_bytes,
                  const Read& read);

    // Return the values of data.pkl and constants.pkl, and the bytes from which they were read.
    [[nodiscard]] const Pickle& data() const { return *data_.values; }
    [[nodiscard]] const Pickle& constants() const { return *constants_.values; }
    [[nodiscard]] std::string_view data_bytes() const { return data_.bytes; }
    [[nodiscard]] std::string_view constants_bytes() const { return constants_.bytes; }
    // Returns the texts of code/….py, by the name of the record.
    [[nodiscard]] const std::map<std::string, std::string, std::less<>>& code() const {
        return code_;
    }

    // Returns how deep parts of code nest; LibTorch's compiler needs stack for that.
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
