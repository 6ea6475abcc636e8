#include "launcher/hosts/bundle_archive.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/fd.h"
#include "base/new_files.h"
#include "base/path.h"
#include "base/text.h"
#include "launch/files/file_facts.h"
#include "launch/files/ustar.h"
#include "storage/files/atomic_file.h"

namespace dslaunch::launcher {
namespace {

constexpr int kCompressionLevel = 3;
constexpr size_t kBlockBytes = 1U << 20;
constexpr int64_t kManifestBytesMax = 64 << 20;

// Writes zstd-compressed bytes into a file.
class Compressor {
  public:
    explicit Compressor(storage::AtomicFile& out)
        : context_(ZSTD_createCCtx(), ZSTD_freeCCtx), out_(out) {
        ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_compressionLevel, kCompressionLevel);
        ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_checksumFlag, 1);
    }
    void write(std::string_view bytes) { run(bytes, ZSTD_e_continue); }
    void finish() { run({}, ZSTD_e_end); }
    [[nodiscard]] int64_t bytes_out() const { return bytes_out_; }

  private:
    void run(std::string_view bytes, ZSTD_EndDirective directive) {
        ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
        for (size_t left = 1; left != 0 || in.pos < in.size;) {
            ZSTD_outBuffer out{block_.data(), block_.size(), 0};
            left = ZSTD_compressStream2(context_.get(), &out, &in, directive);
            if (ZSTD_isError(left)) fail(ExitCode::kSetup, "zstd: {}", ZSTD_getErrorName(left));
            out_.write(std::string_view(block_.data(), out.pos));
            bytes_out_ += static_cast<int64_t>(out.pos);
            if (directive == ZSTD_e_continue && in.pos == in.size) return;
        }
    }

    std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)> context_;
    storage::AtomicFile& out_;
    std::string block_ = std::string(kBlockBytes, '\0');
    int64_t bytes_out_ = 0;
};

// Reads the decompressed bytes in order.
class Decompressor {
  public:
    explicit Decompressor(const std::string& path)
        : path_(path),
          fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)),
          context_(ZSTD_createDCtx(), ZSTD_freeDCtx) {
        if (!fd_.valid()) fail(ExitCode::kInput, "{}: {}", path, errno_text(errno));
    }
    // Returns the next LENGTH bytes, or fewer at the end.
    [[nodiscard]] std::string read(size_t length) {
        std::string bytes(length, '\0');
        ZSTD_outBuffer out{bytes.data(), bytes.size(), 0};
        while (out.pos < out.size) {
            if (in_.pos == in_.size && !refill()) break;
            const size_t before = in_.pos + out.pos;
            const size_t status = ZSTD_decompressStream(context_.get(), &out, &in_);
            if (ZSTD_isError(status)) {
                fail(ExitCode::kInput, "{} is not a bundle, or is damaged: {}", path_,
                     ZSTD_getErrorName(status));
            }
            if (in_.pos + out.pos == before && in_.pos < in_.size) break;
        }
        bytes.resize(out.pos);
        return bytes;
    }

  private:
    bool refill() {
        const ssize_t n = read_full(fd_.get(), std::as_writable_bytes(std::span(block_)));
        if (n < 0) fail(ExitCode::kInput, "{}: {}", path_, errno_text(static_cast<int>(-n)));
        in_ = {block_.data(), static_cast<size_t>(n), 0};
        return n > 0;
    }

    std::string path_;
    UniqueFd fd_;
    std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context_;
    std::vector<char> block_ = std::vector<char>(kBlockBytes);
    ZSTD_inBuffer in_{nullptr, 0, 0};
};

// Adds FILE to OUT. Calls ADDED with the length of each block.
void append_file(Compressor& out, const BundleFile& file, const BundleEntry& entry,
                 const std::function<void(int64_t bytes)>& added) {
    out.write(launch::ustar_header({entry.name, entry.bytes, entry.mode, 0}));
    const UniqueFd in(::open(file.local_path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!in.valid()) fail(ExitCode::kInput, "{}: {}", file.local_path, errno_text(errno));
    std::vector<std::byte> block(kBlockBytes);
    launch::Sha256 hash;
    int64_t bytes = 0;
    for (ssize_t n = 1; n > 0;) {
        n = read_full(in.get(), block);
        if (n < 0) {
            fail(ExitCode::kInput, "{}: {}", file.local_path, errno_text(static_cast<int>(-n)));
        }
        const std::string_view piece(reinterpret_cast<const char*>(block.data()),
                                     static_cast<size_t>(n));
        hash.add(piece);
        out.write(piece);
        bytes += n;
        added(n);
    }
    if (bytes != entry.bytes || hash.hex() != entry.sha256) {
        fail(ExitCode::kInput, "{}: the file changed while it was read; run the command again",
             file.local_path);
    }
    out.write(std::string(launch::ustar_padding(bytes), '\0'));
}

// Reads ENTRY from IN, checks it, and writes it into FOLDER.
void extract(Decompressor& in, const BundleEntry& entry, const std::string& folder) {
    const std::string path = folder + "/" + entry.name;
    const int failed = make_folders(folder_of(path));
    const UniqueFd out(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                              entry.mode == 0755 ? 0755 : 0644));
    if (failed != 0 || !out.valid())
        fail(ExitCode::kDisk, "{}: {}", path, errno_text(failed != 0 ? failed : errno));
    launch::Sha256 hash;
    for (int64_t left = entry.bytes; left > 0;) {
        const auto want = static_cast<size_t>(std::min<int64_t>(left, kBlockBytes));
        const std::string bytes = in.read(want);
        if (bytes.size() != want)
            fail(ExitCode::kInput, "the bundle is cut off within {}; copy or make it again",
                 entry.name);
        hash.add(bytes);
        const int status = write_full(out.get(), bytes);
        if (status != 0) fail(ExitCode::kDisk, "{}: {}", path, errno_text(-status));
        left -= static_cast<int64_t>(bytes.size());
    }
    if (hash.hex() != entry.sha256) {
        fail(ExitCode::kInput,
             "the contents of {} in the bundle differ from its manifest; copy or make the bundle "
             "again",
             entry.name);
    }
    static_cast<void>(in.read(launch::ustar_padding(entry.bytes)));
}

}  // namespace

int64_t write_bundle(const std::string& path, std::vector<BundleFile> files,
                     const BundleProgress& progress) {
    std::sort(files.begin(), files.end(),
              [](const BundleFile& a, const BundleFile& b) { return a.name < b.name; });
    std::vector<BundleEntry> entries;
    int64_t bytes_all = 0;
    launch::HashCache cache(launch::HashCache::default_path());
    for (const BundleFile& file : files) {
        check_bundle_name(file.name, file.local_path);
        struct stat status {};
        if (::stat(file.local_path.c_str(), &status) != 0) {
            fail(ExitCode::kInput, "{}: {}", file.local_path, errno_text(errno));
        }
        if (!entries.empty() && entries.back().name == file.name) {
            fail(ExitCode::kInput, "two files would have the same name in the bundle: {}",
                 file.name);
        }
        const bool runs = (status.st_mode & 0100) != 0;
        entries.push_back(
            {file.name, status.st_size, runs ? 0755 : 0644,
             launch::hash_whole_file(file.local_path, cache, [&] { progress(0, 0); })});
        bytes_all += status.st_size;
    }
    cache.save();
    storage::AtomicFile out(path, Bytes{bytes_all / 3});  // about the size of compressed programs
    Compressor compressor(out);
    const std::string manifest = bundle_manifest_text(entries);
    const auto length = static_cast<int64_t>(manifest.size());
    compressor.write(launch::ustar_header({kBundleManifest, length, 0644, 0}) + manifest +
                     std::string(launch::ustar_padding(length), '\0'));
    int64_t bytes_in = 0;
    for (size_t i = 0; i < files.size(); ++i) {
        append_file(compressor, files[i], entries[i], [&](int64_t bytes) {
            bytes_in += bytes;
            progress(bytes_in, bytes_all);
        });
    }
    compressor.write(launch::ustar_end());
    compressor.finish();
    out.commit();
    return compressor.bytes_out();
}

std::vector<BundleEntry> unpack_bundle(const std::string& path, const std::string& folder) {
    Decompressor in(path);
    const auto first = launch::parse_ustar_header(in.read(launch::kUstarBlockBytes));
    if (!first || first->name != kBundleManifest || first->bytes > kManifestBytesMax) {
        fail(ExitCode::kInput, "{} is not a bundle: its first file is not {}", path,
             kBundleManifest);
    }
    const std::string text = in.read(static_cast<size_t>(first->bytes));
    static_cast<void>(in.read(launch::ustar_padding(first->bytes)));
    auto expected = parse_bundle_manifest(text, path);
    std::vector<BundleEntry> entries;
    while (const auto header = launch::parse_ustar_header(in.read(launch::kUstarBlockBytes))) {
        const auto found = expected.find(header->name);
        if (found == expected.end() || found->second.bytes != header->bytes) {
            fail(ExitCode::kInput,
                 "{}: the bundle's file `{}` is missing from the manifest, has another size than "
                 "in the manifest, or occurs twice; make the bundle again",
                 path, printable(header->name));
        }
        extract(in, found->second, folder);
        entries.push_back(found->second);
        expected.erase(found);
    }
    if (!expected.empty()) {
        fail(ExitCode::kInput, "{}: the file {} is missing from the bundle; copy or make it again",
             path, printable(expected.begin()->first));
    }
    return entries;
}

}  // namespace dslaunch::launcher
