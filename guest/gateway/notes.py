"""A user's notes behind the gateway: what a person reads, writes and undoes."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from wire.errors import Code
from wire.v1 import gateway_pb2 as pb
from wire.zones import today

from guest.errors import GuestError, StorageError
from guest.gateway import convert, validation
from guest.gateway.validation import CHANNEL, REPLY_MAX_BYTES, largest_page
from guest.memory.memory import Memory
from guest.memory.models import Filter, Hit, Only, Origin, SupersedeRefused
from guest.memory.period import Period, begins
from guest.memory.search.context_block import one_line
from guest.memory.when import days, read
from guest.notices.reminders import Reminders, due_at
from guest.tools.memory.answers import about_similar, marks
from guest.tools.redaction.placeholders import placeholder_in
from guest.tools.redaction.scrubber import REDACTED

log = logging.getLogger(__name__)

_PAGE_DEFAULT: Final = 50
_TOP_K_DEFAULT: Final = 5
_STALE_DAYS_DEFAULT: Final = 180
_TOO_LONG: Final = (
    "only the first {most} of each are shown: all of these notes are too long for one answer"
)


class Notes:
    """A person's own notes. What a person writes counts as the user's word.

    `hide` redacts the secrets of this launch. Replies are made here from the notes as stored;
    `GatewayService` redacts all of them.
    """

    def __init__(
        self, memory: Memory, hide: Callable[[str], str], reply_max_bytes: int = REPLY_MAX_BYTES
    ) -> None:
        self._memory = memory
        self._hide = hide
        self._reply_max_bytes = reply_max_bytes

    async def save(self, request: pb.SaveNoteRequest) -> pb.SaveNoteReply:
        text, tags = request.text, [*request.tags]
        _refuse_placeholders(text, *tags)
        origin = _by_a_person(request.channel, link=request.link)
        saved = await self._memory.save(text, tags, origin)
        _log_change(saved.note.note_id, "saved" if saved.created else "saved again", origin)
        message = f"Stored: [id: {saved.note.note_id}]"
        existing = () if saved.created else (saved.note,)
        if existing:
            message += " (a note with this text was there already)"
        return pb.SaveNoteReply(
            note_id=saved.note.note_id,
            message=message,
            searchable=saved.searchable,
            similar=[
                pb.Note(note_id=hit.note_id, text=hit.text, score=hit.score)
                for hit in saved.similar
            ],
            warnings=map(one_line, (*marks(existing), *about_similar(saved))),
        )

    async def list(self, request: pb.ListNotesRequest) -> pb.ListNotesReply:
        only = replace(_filter(request), tag=request.tag, due=request.with_due)

        async def page(limit: int) -> pb.ListNotesReply:
            notes, following = await self._memory.list(
                limit, request.cursor, only, include_superseded=request.include_superseded
            )
            return pb.ListNotesReply(notes=map(convert.note, notes), next_cursor=following)

        return await largest_page(request.limit or _PAGE_DEFAULT, page, self._reply_max_bytes)

    async def search(self, request: pb.SearchNotesRequest) -> pb.SearchNotesReply:
        chosen, period = _filter(request), None
        if request.read_time and chosen == chosen.at_any_time:
            period = read(request.query, today())
        if period is not None:
            then = period.limits("")
            chosen = replace(chosen, since=then.since, before=then.before)
        found = await self._memory.search(
            request.query,
            top_k=request.top_k or _TOP_K_DEFAULT,
            tags=[*request.tags],
            include_conversation=request.include_conversation,
            only=Only(superseded=request.include_superseded, chosen=chosen),
            weak=True,
            or_anytime=period is not None,
            cursor=request.cursor,
        )
        return pb.SearchNotesReply(
            notes=await self._results(found.results),
            warnings=map(one_line, (*found.all_warnings, *marks(found.results))),
            period=str(period or ""),
            next_cursor=found.next_cursor,
        )

    async def get(self, request: pb.GetNoteRequest) -> pb.Note:
        return convert.note(await self._memory.notes.get(request.note_id))

    async def edit(self, request: pb.EditNoteRequest) -> pb.Note:
        note_id, text = request.note_id, request.text
        tags = None
        if request.replace_tags:
            validation.tags("tags", tags := [*request.tags])
        _refuse_placeholders(text, *(tags or ()))
        version = request.expected_version or None
        origin = _by_a_person(request.channel)
        if REDACTED in text:
            await self._refuse_hidden_text(note_id)
        updated = await self._memory.update(note_id, text, tags, origin, expected_version=version)
        _log_change(note_id, "edited", origin)
        return convert.note(updated.note)

    async def remind(self, request: pb.SetReminderRequest) -> pb.Note:
        note_id, origin = request.note_id, _by_a_person(request.channel)
        reminders = Reminders(self._memory)
        if bool(note_id) == bool(request.text.strip()):
            raise ValueError("text: give either that of a new reminder, or note_id")
        if not request.due:
            try:
                await reminders.done(note_id, origin)
            except SupersedeRefused as refused:
                raise GuestError(Code.CONFLICT, str(refused)) from None
            return convert.note(await self._memory.notes.get(note_id))
        due = due_at(request.due, validation.time_zone(request.time_zone), datetime.now(UTC))
        if note_id:
            note = await reminders.move(note_id, due, origin)
        else:
            _refuse_placeholders(request.text)
            note = await reminders.set(request.text, due, (), origin)
        _log_change(note.note_id, "set as a reminder", origin)
        return convert.note(note)

    async def delete(self, request: pb.DeleteNoteRequest) -> pb.DeleteNoteReply:
        note_id = request.note_id
        erasure = await self._memory.notes.erasure(note_id)
        if not request.dry_run:
            version = request.expected_version or None
            await self._memory.delete(note_id, expected_version=version)
            _log_change(note_id, "deleted", _by_a_person(""))
        return convert.message(pb.DeleteNoteReply, erasure)

    async def changes(self, request: pb.ListChangesRequest) -> pb.ListChangesReply:
        async def page(limit: int) -> pb.ListChangesReply:
            changes, following = await self._memory.history.changes(
                note_id=request.note_id,
                limit=limit,
                cursor=request.cursor,
                actor=request.actor,
                material_only=request.material_only,
                session_id=request.session_id,
            )
            return pb.ListChangesReply(changes=map(convert.change, changes), next_cursor=following)

        if request.note_id:
            await self._memory.notes.get(request.note_id)
        return await largest_page(request.limit or _PAGE_DEFAULT, page, self._reply_max_bytes)

    async def undo(self, request: pb.UndoChangeRequest) -> pb.UndoChangeReply:
        origin = _by_a_person(request.channel)
        undone = await self._memory.history.undo(
            request.note_id,
            expected_version=request.expected_version or None,
            may_forget=request.may_forget,
            channel=origin.channel,
        )
        _log_change(request.note_id, f"undone: {undone.done}", origin)
        return pb.UndoChangeReply(
            done=undone.done, note=convert.note(undone.note) if undone.note else None
        )

    async def review(self, request: pb.ReviewMemoryRequest) -> pb.ReviewMemoryReply:
        reviewed = await self._memory.review(
            stale_days=request.stale_days or _STALE_DAYS_DEFAULT,
            limit=request.limit or _PAGE_DEFAULT,
        )
        found = max(len(reviewed.similar), len(reviewed.stale))

        async def first(most: int) -> pb.ReviewMemoryReply:
            cut = (_TOO_LONG.format(most=most),) if most < found else ()
            return pb.ReviewMemoryReply(
                near=map(convert.pair, reviewed.similar[:most]),
                stale=map(convert.note, reviewed.stale[:most]),
                warnings=(*reviewed.warnings, *cut),
            )

        return await largest_page(found, first, self._reply_max_bytes)

    async def statistics(self, _: pb.MemoryStatisticsRequest) -> pb.MemoryStatisticsReply:
        counts, quota = await self._memory.statistics(), self._memory.quota
        return convert.message(
            pb.MemoryStatisticsReply,
            counts,
            embedder=await self._memory.store.vectorizer.state(),
            encrypted=bool(self._memory.store.config.encryption_key),
            stored_notes_max=quota.notes,
            text_bytes_max=quota.text_bytes,
            vectors=[
                pb.ModelVectors(model=model, vectors=vectors)
                for model, vectors in counts.vectors.items()
                if counts.vectors.keys() != {counts.embedding_model}
            ],
        )

    async def reembed(self, _: pb.ReembedMemoryRequest) -> pb.ReembedMemoryReply:
        return pb.ReembedMemoryReply(passages=await self._memory.reembed())

    async def _results(self, results: Sequence[Hit]) -> Sequence[pb.Note]:
        """Search results with the origins of their notes; without origins if the store does not
        answer."""
        try:
            found = await self._memory.notes.get_many(
                [hit.note_id for hit in results if hit.note_id]
            )
        except StorageError:
            found = []
        origins = {note.note_id: note.origin for note in found}
        return [convert.result(hit, origins.get(hit.note_id)) for hit in results]

    async def _refuse_hidden_text(self, note_id: str) -> None:
        """Raise `GuestError` if the note holds a secret: it is shown as `[redacted]`, and an
        edit of that text must not be stored."""
        stored = (await self._memory.notes.get(note_id)).text
        if self._hide(stored) != stored:
            raise GuestError(
                Code.FAILED_PRECONDITION,
                f"{note_id} holds a secret of this launch, which is shown as {REDACTED}",
                details=f"nothing was changed: saved like that, the note would say {REDACTED}",
                resolution=f"write the text without {REDACTED}, or with what shall stand there",
            )


def _filter(request: pb.ListNotesRequest | pb.SearchNotesRequest) -> Filter:
    first, last = days(request.since, today()).since, days(request.until, today()).until
    since, until = (str(day or "") for day in (first, last))
    validation.in_order(since, request.before)
    then = Period.of(since, until).limits("")
    return Filter(
        type=request.type,
        actor=request.actor,
        material_only=request.material_only,
        session_id=request.session_id,
        channel=request.origin_channel,
        since=then.since,
        before=then.before or begins(request.before),
    )


def _refuse_placeholders(*texts: str) -> None:
    """Raise `GuestError` if a text was copied from what a model saw in place of a secret."""
    for text in texts:
        if word := placeholder_in(text):
            raise GuestError(
                Code.FAILED_PRECONDITION,
                f"{word} only stands for a secret",
                details="nothing was changed: saved like that, the note would not hold the secret",
                resolution="write the secret itself in its place, or leave it out",
            )


def _by_a_person(channel: str, link: str = "") -> Origin:
    return Origin(actor="user", channel=channel or CHANNEL, link=link)


def _log_change(note_id: str, change: str, origin: Origin) -> None:
    log.info("%s: %s by a person through %s", note_id, change, origin.channel)
