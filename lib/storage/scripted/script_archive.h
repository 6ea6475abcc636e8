// A TorchScript archive before LibTorch reads it. LibTorch takes the numbers of an archive as they
// stand: a tensor may claim memory outside of its record, a pickle may name an entry of its memo
// that takes gigabytes, code may nest until the stack ends. All of that is looked for here, in the
// bytes that LibTorch is then given. Data path: zip -> [here] -> graph/archive. Pure, no LibTorch.
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

// All tensors of an archive, and the storages that its pickles ask for, may have so many bytes.
// Tensors share elements (a mask that is expanded), so that they may be more than the file.
[[nodiscard]] int64_t script_bytes_max(int64_t file_bytes);

class ScriptArchive {
  public:
    // Gives the content of a record, expanded where it is deflated.
    using Read = std::function<std::string(const ZipRecord&)>;

    // FILE_BYTES: of the whole archive. Throws Error{kInput} that begins with PATH: no pickle of a
    // module or of its constants, one that restricted_unpickler.h refuses, a tensor outside of its
    // record or with an impossible shape, tensors that expand to much more than the file, numbers
    // that are not little-endian, or code that script_code.h refuses.
    ScriptArchive(const std::string& path, const ZipDirectory& directory, int64_t file_bytes,
                  const Read& read);

    // data.pkl and constants.pkl, and the bytes that they were read from.
    [[nodiscard]] const Pickle& data() const { return *data_.values; }
    [[nodiscard]] const Pickle& constants() const { return *constants_.values; }
    [[nodiscard]] std::string_view data_bytes() const { return data_.bytes; }
    [[nodiscard]] std::string_view constants_bytes() const { return constants_.bytes; }
    // Texts of code/….py, by the name of the record.
    [[nodiscard]] const std::map<std::string, std::string, std::less<>>& code() const {
        return code_;
    }

    // Parts of code inside each other, which LibTorch's compiler needs stack for.
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
