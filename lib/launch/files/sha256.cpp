#include "launch/files/sha256.h"

#include "base/check.h"
#include "base/text.h"
#include "base/text_bytes.h"

namespace dslaunch::launch {

Sha256::Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    DSL_CHECK(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1,
              "libcrypto has no SHA-256");
}

void Sha256::add(const void* data, size_t length) {
    DSL_CHECK(EVP_DigestUpdate(context_.get(), data, length) == 1, "SHA-256 failed");
}

std::string Sha256::raw() {
    std::string digest(32, '\0');
    DSL_CHECK(EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()),
                                 nullptr) == 1 &&
                  EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1,
              "SHA-256 failed");
    return digest;
}

std::string Sha256::hex() {
    return hex_text(bytes_in(raw()));
}

}  // namespace dslaunch::launch
