// SentencePiece for the page: encode, decode and pieces of one model.
#include <cstdint>
#include <string>
#include <vector>

#include "filesystem.h"
#include "sentencepiece_processor.h"

// There are no files.
namespace sentencepiece::filesystem {
std::unique_ptr<ReadableFile> NewReadableFile(absl::string_view, bool) { return nullptr; }
std::unique_ptr<WritableFile> NewWritableFile(absl::string_view, bool) { return nullptr; }
} // namespace sentencepiece::filesystem

namespace {
sentencepiece::SentencePieceProcessor processor;
std::vector<int> ids;
std::string text;
} // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

// Load a model; 0 if it is not one.
EXPORT int tokenizer_load(const char* model, int size) { return processor.LoadFromSerializedProto(absl::string_view(model, size)).ok(); }
EXPORT int tokenizer_size() { return processor.GetPieceSize(); }
// The number of ids of a text, which are at tokenizer_ids().
EXPORT int tokenizer_encode(const char* from, int size) {
    ids.clear();
    return processor.Encode(absl::string_view(from, size), &ids).ok() ? static_cast<int>(ids.size()) : -1;
}
EXPORT const int* tokenizer_ids() { return ids.data(); }
// The number of bytes of the text of some ids, which is at tokenizer_text().
EXPORT int tokenizer_decode(const int* from, int count) {
    ids.assign(from, from + count);
    return processor.Decode(ids, &text).ok() ? static_cast<int>(text.size()) : -1;
}
EXPORT const char* tokenizer_text() { return text.data(); }
// The same for the text of a piece, and whether a piece is a control symbol.
EXPORT int tokenizer_piece(int id) {
    text = processor.IdToPiece(id);
    return static_cast<int>(text.size());
}

// What the libraries call at the end of a program, which never comes.
extern "C" int __cxa_thread_atexit(void (*)(void*), void*, void*) { return 0; }
namespace absl {
void CleanupFlags() {}
} // namespace absl

EXPORT int tokenizer_is_control(int id) { return processor.IsControl(id); }
// The id of a piece; the id of the unknown token if there is no such piece.
EXPORT int tokenizer_find(const char* piece, int size) { return processor.PieceToId(absl::string_view(piece, size)); }
