# SPDX-License-Identifier: Apache-2.0
"""The steps of `up`, `update`, `rollback` and `down`.

What was not finished follows three rules. A verb that names nothing goes on with it. `up RECIPE` and `update --image` replace it. `rollback`
and `down` give it up.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from stack.base.errors import StackError
from stack.base.text import counted
from stack.deploy import recipes
from stack.owner import caches, images, models, newer, server, state_file, switching
from stack.owner.newer import Permission
from stack.owner.server import Place
from stack.owner.state import Image, Model, Setup, State, Step, Wanted, Work
from stack.owner.switching import Outcome

NO_SERVER = StackError("there is no server yet", "start one: spark-stack up RECIPE --image IMAGE")


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner's server, with everything that its verbs need; `made` makes a model of the validation by its name."""

    place: Place
    file: Path
    made: Callable[[str], Path]

    def up(self, known: State, wanted: Wanted | None) -> Outcome:
        """Bring a server up, or keep the one that runs if it is the wanted one; None: what is not finished, else what ran last.

        Raises:
            StackError: The image or the model is not to be had, or an old server does not start again.

        """
        work = known.work
        if wanted is not None:
            return self._up(known, wanted)
        if work is None:
            return self._up(known, _last(known))
        if work.step is Step.BACK:
            return switching.go_back(self.place, self.file, known)
        if work.verb == "rollback":
            return self.rollback(known)
        return self._up(known, work.wanted) if work.verb == "up" else self._update(known, work.wanted, Permission.ASKED)

    def update(
        self,
        known: State,
        name: str | None,
        key: Path | None,
        keep_free: float | None = None,
        older: Permission = Permission.NONE,
    ) -> Outcome:
        """Put a newer image in the place of the one that runs; go back if it does not do.

        Raises:
            StackError: There is no server, the image is not to be had or older, or the old server does not start again.

        """
        work = known.work
        if name is None and work is not None and work.step is Step.BACK:
            return switching.go_back(self.place, self.file, known)
        setup = known.now or known.target
        if setup is None:
            raise NO_SERVER
        base = work.wanted if name is None and work is not None and work.verb == "update" else setup.wanted
        free = base.keep_free if keep_free is None else keep_free
        return self._update(known, replace(base, image=name or base.image, key=key or base.key, keep_free=free), older)

    def rollback(self, known: State) -> Outcome:
        """Give up what is not finished; else return to the server before. Called again, that returns to the newer one.

        If nothing ran before the server that is given up, nothing serves afterwards.

        Raises:
            StackError: There is none before, or neither of them starts.

        """
        work = known.work
        if work is not None and work.step is Step.BACK:
            return switching.go_back(self.place, self.file, known)
        given_up = work is not None and work.verb != "rollback"
        target = known.now if given_up else known.before
        if target is None and given_up:
            self.down(known)
            return Outcome(replace(known, target=None, work=None), None, None)
        if target is None:
            raise StackError("no server ran before this one", "spark-stack status shows what is known")
        images.again(self.place.engine, target.image, self.place.tell)
        return switching.switch(self.place, self.file, known, target, "rollback")

    def down(self, known: State, *, everything: bool = False) -> bool:
        """Stop and remove the container, never the model; return whether there was one.

        `everything`: remove the compiled code and the kept images, too, and forget the servers.

        Raises:
            StackError: The engine does not do it.

        """
        was = server.stop(self.place)
        if everything:
            setups = [each for each in (known.now, known.before, known.target) if each is not None]
            images.forget(self.place.engine, [each.image for each in setups])
            caches.remove(self.place.engines, keep=())
            self.place.log.unlink(missing_ok=True)
            self._save(State(known.engine, known.container))
        elif not known.is_empty:  # without a server, no engine is chosen for the next one
            self._save(replace(known, target=None, work=None))
        return was

    def _up(self, known: State, wanted: Wanted) -> Outcome:
        name = wanted.image or _last_image(known)
        if name is None:
            raise StackError("no image is named", images.NAMELESS.format(recipe=wanted.recipe))
        wanted = replace(wanted, image=name)
        known = self._save(replace(known, work=Work("up", Step.IMAGE, wanted)))
        image = self._image(known, name, wanted.key)
        return self._with_model(known, wanted, image, "up")

    def _update(self, known: State, wanted: Wanted, older: Permission) -> Outcome:
        assert wanted.image is not None, "the server that runs has one"
        known = self._save(replace(known, work=Work("update", Step.IMAGE, wanted)))
        engine, now = self.place.engine, known.now
        image = images.bring(engine, wanted.image, wanted.key, self.place.tell)
        if now is not None and image.digest == now.image.digest and known.target is None and wanted.keep_free == now.keep_free:
            # The volume of compiled code stays that of the container which runs.
            now = replace(now, image=replace(now.image, name=image.name, key=image.key or now.image.key))
            known = self._save(replace(known, now=now, work=None))
            return Outcome(known, now, None)
        if now is not None:
            try:
                newer.demand(engine, image, now.image, older)
            except StackError:
                self._save(replace(known, work=None))
                raise
        outcome = self._with_model(known, wanted, image, "update")
        if count := caches.remove(self.place.engines, keep=(outcome.state.now, outcome.state.before)):
            self.place.warn(f"removed {counted(count, 'volume')} with compiled code of images that are not kept")
        return outcome

    def _with_model(self, known: State, wanted: Wanted, image: Image, verb: str) -> Outcome:
        """Provide the model, and put a server of it and of the image in the place of the one that runs."""
        known = self._save(replace(known, work=Work(verb, Step.MODEL, wanted)))
        model = self._model(known, wanted.recipe, wanted.model)
        options = (wanted.port, wanted.opened, wanted.fallback, wanted.variables, wanted.extra, wanted.keep_free)
        return switching.switch(self.place, self.file, known, Setup(wanted.recipe, image, model, *options), verb)

    def _image(self, known: State, name: str, key: Path | None) -> Image:
        """Return the image that a name meant before, if it is here still: `up` moves no tag, `update` does."""
        before = [setup.image for setup in (known.target, known.now) if setup is not None and setup.image.name == name]
        for image in before:
            if (key is None or image.key == str(key.absolute())) and images.have(self.place.engine, image):
                return image
        return images.bring(self.place.engine, name, key, self.place.tell)

    def _model(self, known: State, recipe: str, folder: Path | None) -> Model:
        before = known.target or known.now
        checked = before.model if before is not None else None
        return models.provide(recipes.load(recipe, self.place.root), folder, checked, self.made, self.place.tell)

    def _save(self, known: State) -> State:
        state_file.write(self.file, known)
        return known


def _last(known: State) -> Wanted:
    """Return the server that ran last.

    Raises:
        StackError: None did.

    """
    setup = known.target or known.now
    if setup is None:
        raise NO_SERVER
    return setup.wanted


def _last_image(known: State) -> str | None:
    setup = known.target or known.now
    return setup.image.name if setup is not None else None
