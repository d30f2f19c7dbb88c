"""What each part of the screen says: pure functions from state to lines of styled text. No Textual here."""
