// TorchScript archives: zips whose records are below one root folder, with weights uncompressed and
// aligned to 64 bytes, code that may be deflated, and files of the user below ROOT/extra/. Reads
// them by mapping; writes copies with more extra files. Views are valid as long as the ZipArchive
// lives (see mapped_file.h about files that shrink). Threads: const, any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "storage/files/mapped_file.h"

namespace dslaunch::storage {

// A file in the zip.
struct ZipRecord {
    std::string name;  // without the root: "data/0", "extra/ds_config.json"
    bool is_deflated = false;
    bool is_utf8 = true;  // the writer marked the name as UTF-8
    uint32_t crc32 = 0;
    int64_t content_bytes = 0;
    std::span<const std::byte> stored;  // the bytes in the file: the content unless deflated
};

// All files in the zip.
struct ZipDirectory {
    std::string root;                // "train" in "train/data/0"
    std::vector<ZipRecord> records;  // in the order of their bytes in the file
};

// Throws Error{kInput} that begins with PATH unless BYTES are exactly one zip that can be read
// safely. The directory must be at the end, local headers must agree with it, and records must lie
// inside the file without overlap. Names must be unique and below one root. Records must be stored
// or deflated, not encrypted, and on one disk.
[[nodiscard]] ZipDirectory parse_zip(const std::string& path, std::span<const std::byte> bytes);

// Returns the size of all records after decompression, according to the zip's directory. Throws
// what parse_zip() throws if the directory is damaged; does not check the positions of the records.
[[nodiscard]] Bytes expanded_bytes(const std::string& path, std::span<const std::byte> bytes);

// A mapped archive and its records.
class ZipArchive {
  public:
    // Throws what MappedFile and parse_zip() throw. Does not compute checksums.
    explicit ZipArchive(const std::string& path);

    // Return the path that the constructor got, and the parts of the directory.
    [[nodiscard]] const std::string& path() const { return file_.path(); }
    [[nodiscard]] const std::string& root() const { return directory_.root; }
    [[nodiscard]] const std::vector<ZipRecord>& records() const { return directory_.records; }
    // Returns the record NAME, given without the root; null if there is no such record.
    [[nodiscard]] const ZipRecord* find(std::string_view name) const;

    // Returns the record's content in the mapping; it is 64-byte aligned if PyTorch or
    // pack_archive() wrote it. Throws Error{kInput} if it is deflated. RECORD must be one of
    // records(). Does not compare the checksum.
    [[nodiscard]] std::span<const std::byte> content(const ZipRecord& record) const;

    // Returns the content of extra/NAME after comparing its checksum; nothing if there is no such
    // record. Throws Error{kInput} if it is deflated or damaged.
    [[nodiscard]] std::optional<std::string_view> extra(std::string_view name) const;

  private:
    MappedFile file_;
    ZipDirectory directory_;
};

// Options of pack_archive().
struct PackOptions {
    // Sizes and offsets from this value on use zip64 fields. Only tests set a smaller value.
    uint64_t zip64_from = 0xFFFFFFFF;
};

// Copies the archive IN to OUT (which may be the same path). For each entry of EXTRAS, adds or
// replaces extra/NAME with the given content, uncompressed; all other records are kept. Contents
// are aligned to 64 bytes. At any moment OUT is the old file or the complete new one, durably.
// Throws Error{kInput} if IN is damaged or a NAME is not allowed, and Error{kDisk} if writing
// fails. A NAME has at most 200 bytes, no control characters, and no part that is empty, "." or
// "..". Blocks on the disk.
void pack_archive(const std::string& in, const std::string& out,
                  const std::map<std::string, std::string>& extras,
                  const PackOptions& options = {});

}  // namespace dslaunch::storage
