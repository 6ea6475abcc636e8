#include "launch/files/sent_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/bytes.h"
#include "base/error.h"
#include "launch/files/file_facts.h"
#include "launch/protocol/push_messages.h"

namespace dslaunch::launch {

SentFile::SentFile(std::string path)
    : path_(std::move(path)), fd_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    struct stat status {};
    if (!fd_.valid() || ::fstat(fd_.get(), &status) != 0)
        fail(ExitCode::kInput, "{}: {}", path_, errno_text(errno));
    if (!S_ISREG(status.st_mode)) fail(ExitCode::kInput, "{}: not a plain file", path_);
    if (status.st_size > kPushFileBytesMax) {
        fail(ExitCode::kInput,
             "{}: the file has {}, but at most {} can be sent as one file; split it", path_,
             to_text(Bytes{status.st_size}), to_text(Bytes{kPushFileBytesMax}));
    }
    facts_.bytes = status.st_size;
    facts_.mode = status.st_mode & 0777;
    facts_.modified_ns = in_nanoseconds(status.st_mtim);
}

std::string SentFile::hash(HashCache& cache, const std::function<void()>& alive) const {
    std::string hash = hash_whole_file(path_, cache, alive);
    if (hash.empty()) fail(ExitCode::kInput, "cannot read {}", path_);
    return hash;
}

std::string SentFile::chunk_hashes(const std::function<void()>& alive) const {
    std::string hashes;
    Sha256 hash;
    for (int64_t at = 0; at < facts_.bytes; at += kPushChunkBytes) {
        hash.add(read(at, std::min(kPushChunkBytes, facts_.bytes - at)));
        hashes += hash.raw();
        alive();
    }
    return hashes;
}

std::string SentFile::read(int64_t offset, int64_t length) const {
    std::string bytes(static_cast<size_t>(length), '\0');
    for (size_t done = 0; done < bytes.size();) {
        const ssize_t n = ::pread(fd_.get(), bytes.data() + done, bytes.size() - done,
                                  offset + static_cast<int64_t>(done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            fail(ExitCode::kInput, "{}: {}", path_,
                 n < 0 ? errno_text(errno) : "the file became shorter while it was sent");
        }
        done += static_cast<size_t>(n);
    }
    return bytes;
}

bool FilePieces::has_all(const std::vector<uint32_t>& chunks, int64_t file_bytes) {
    return std::ranges::all_of(
        chunks, [&](uint32_t chunk) { return int64_t{chunk} * kPushChunkBytes < file_bytes; });
}

std::optional<FilePieces::Piece> FilePieces::next() {
    if (chunk_ == missing_.size()) return std::nullopt;
    const int64_t begin = int64_t{missing_[chunk_]} * kPushChunkBytes;
    const int64_t end = std::min(begin + kPushChunkBytes, file_bytes_);
    const Piece piece{begin + done_, std::min(kPushPieceBytes, end - begin - done_)};
    done_ += piece.bytes;
    if (begin + done_ == end) {
        ++chunk_;
        done_ = 0;
    }
    return piece;
}

}  // namespace dslaunch::launch
