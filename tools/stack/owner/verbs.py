# SPDX-License-Identifier: Apache-2.0
"""The steps of `up`, `update`, `rollback` and `down`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from stack.base.errors import StackError
from stack.deploy import recipes
from stack.owner import images, models, server, state, switching
from stack.owner.server import Place
from stack.owner.state import Image, Model, Setup, State, Step, Work
from stack.owner.switching import Outcome

NO_SERVER = StackError("there is no server yet", "start one: spark-stack up RECIPE --image IMAGE")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A server that the owner wants: a recipe, the name of an image, and the options of `up`.

    `image`: None: the one of the server that ran last. `key`: the file of the public key that has to have signed it. `model`: a folder;
    None: the recipe's published model.
    """

    recipe: str
    image: str | None
    key: Path | None
    model: Path | None
    port: int
    opened: bool = False
    fallback: bool = False
    variables: Mapping[str, str] | None = None
    extra: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner's server, with everything that its verbs need; `made` makes a model of the validation by its name."""

    place: Place
    file: Path
    made: Callable[[str], Path]

    def up(self, known: State, wanted: Wanted) -> Outcome:
        """Bring a server up, or keep the one that runs if it is the wanted one.

        Raises:
            StackError: The image or the model is not to be had, or an old server does not start again.

        """
        if _goes_back(known):
            return switching.go_back(self.place, self.file, known)
        name = wanted.image or _last_image(known)
        if name is None:
            raise StackError("no image is named", images.NAMELESS.format(recipe=wanted.recipe))
        known = self._begin(known, Work("up", Step.IMAGE, wanted.recipe, name))
        image = self._image(known, name, wanted.key)
        known = self._begin(known, Work("up", Step.MODEL, wanted.recipe, name))
        model = self._model(known, wanted.recipe, wanted.model)
        setup = Setup(
            *(wanted.recipe, image, model, wanted.port, wanted.opened, wanted.fallback, wanted.variables or {}, wanted.extra)
        )
        return switching.switch(self.place, self.file, known, setup, "up")

    def update(self, known: State, name: str | None, key: Path | None) -> Outcome:
        """Put a newer image in the place of the one that runs; go back if it does not do.

        Raises:
            StackError: There is no server, the image is not to be had, or the old server does not start again.

        """
        if _goes_back(known):
            return switching.go_back(self.place, self.file, known)
        now = known.now or known.target
        if now is None:
            raise NO_SERVER
        name = name or (known.work.image if known.work is not None and known.work.verb == "update" else now.image.name)
        if key is None and now.image.key is not None:
            key = Path(now.image.key)
        known = self._begin(known, Work("update", Step.IMAGE, now.recipe, name))
        image = images.bring(self.place.engine, name, key, self.place.tell)
        if known.now is not None and image.digest == known.now.image.digest and known.target is None:
            known = self._save(replace(known, work=None))
            return Outcome(known, known.now, None)
        known = self._begin(known, Work("update", Step.MODEL, now.recipe, name))
        model = self._model(known, now.recipe, None if now.model.repository else Path(now.model.folder))
        return switching.switch(self.place, self.file, known, replace(now, image=image, model=model), "update")

    def rollback(self, known: State) -> Outcome:
        """Return to the server before; called again, it returns to the newer one.

        Raises:
            StackError: There is none before, or neither of them starts.

        """
        if _goes_back(known):
            return switching.go_back(self.place, self.file, known)
        # An update that is not finished is given up.
        unfinished = known.work is not None and known.work.verb != "rollback"
        target = known.now if unfinished else known.before
        if target is None:
            raise StackError("no server ran before this one", "spark-stack status shows what is known")
        images.again(self.place.engine, target.image, self.place.tell)
        return switching.switch(self.place, self.file, known, target, "rollback")

    def down(self, known: State) -> bool:
        """Stop and remove the container, never the model or an image; return whether there was one.

        Raises:
            StackError: The engine does not do it.

        """
        was = server.stop(self.place)
        self._save(replace(known, target=None, work=None))
        return was

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

    def _begin(self, known: State, work: Work) -> State:
        return self._save(replace(known, work=work))

    def _save(self, known: State) -> State:
        state.write(self.file, known)
        return known


def again(known: State) -> Wanted:
    """Return what `up` without a recipe means: what was not finished, else the server that ran last.

    Raises:
        StackError: There is nothing of either.

    """
    setup = known.target or known.now
    if setup is None and known.work is not None and known.work.verb == "up":
        # The work does not hold the options, and a start without --key would not verify the image.
        raise StackError(
            f"the first start of {known.work.recipe} is not finished", f"call it again, with its options: {known.work.command}"
        )
    if setup is None:
        raise NO_SERVER
    folder = None if setup.model.repository else Path(setup.model.folder)
    key = Path(setup.image.key) if setup.image.key else None
    options = (setup.port, setup.opened, setup.fallback, setup.variables, setup.extra)
    return Wanted(setup.recipe, setup.image.name, key, folder, *options)


def _goes_back(known: State) -> bool:
    return known.work is not None and known.work.step is Step.BACK


def _last_image(known: State) -> str | None:
    setup = known.target or known.now
    return setup.image.name if setup is not None else None
